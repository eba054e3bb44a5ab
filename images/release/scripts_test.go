package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// TestPackageScripts: a program that refuses the installed policy is replaced by the one before it, and the package fails with file and
// line. Once the policy is corrected, the package's program is in force.
func TestPackageScripts(t *testing.T) {
	root := t.TempDir()
	put := func(name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(root+name), 0o755))
		require.NoError(t, os.RemoveAll(root+name)) // as a package manager, which renames the new file
		require.NoError(t, os.WriteFile(root+name, []byte(text), 0o755))
	}
	// refuses is a program that does not know the word.
	refuses := func(word string) string {
		return "#!/bin/sh\n! grep -Hn " + word + " $2/*.hcl >&2 # lint DIR\n"
	}
	script := func(name, argument string) (bool, string) {
		text := require.ReadFile(t, "../package/"+name+".sh")
		moved := strings.NewReplacer(" /usr/", " "+root+"/usr/", "(/usr/", "("+root+"/usr/", " /etc/", " "+root+"/etc/", "=/var/", "="+root+"/var/",
			"/run/systemd/system", "/nonexistent")
		out, err := exec.Command("sh", "-c", moved.Replace(string(text)), "sh", argument).CombinedOutput()
		return err == nil, string(out)
	}
	upgrade := func(program string) (bool, string) {
		ok, out := script("preinstall", "upgrade")
		require.True(t, ok, "%v", out)
		put("/usr/bin/nodegate", program)
		return script("postinstall", "configure")
	}
	force := func() string {
		text, err := os.ReadFile(root + "/usr/bin/nodegate")
		require.NoError(t, err)
		return string(text)
	}
	const policy = "/etc/nodegate/policy.d/mine.hcl"
	one, two, three := refuses("later"), refuses("newer"), refuses("newest")
	for _, step := range []struct {
		what, policy, program, says, inForce string
		ok                                   bool
	}{
		{"a first installation", "", one, "", one, true},
		{"a good policy", "module\n", two, "", two, true},
		{"a downgrade under a newer policy", "module\nlater\n", one, policy + ":2:later", two, false},
		{"the same again", "module\nlater\n", "", policy + ":2:later", two, false},
		{"a corrected policy", "module\n", "", "", one, true},
		{"refused, then another version", "module\nlater\nnewer\n", two, policy + ":3:newer", one, false},
		{"the other version", "module\nlater\nnewer\n", three, "", three, true},
	} {
		if step.policy != "" {
			put(policy, step.policy)
		}
		run := upgrade
		if step.program == "" {
			run = func(string) (bool, string) { return script("postinstall", "configure") }
		}
		ok, out := run(step.program)
		assert.True(t, ok == step.ok && strings.Contains(out, step.says) && (!ok || out == ""), "%s: success %t\n%s", step.what, ok, out)
		assert.Equal(t, force(), step.inForce, "%s: the program in force", step.what)
	}
	put("/var/lib/nodegate/journal.json", `{"path": "/usr/local/bin/nodegate"}`)
	if ok, out := upgrade(two); !ok || !strings.Contains(out, "stays in force") {
		t.Errorf("with a copy in force: success %t\n%s", ok, out)
	}
	if ok, out := script("postremove", "remove"); !ok {
		t.Error(out)
	}
	left, err := filepath.Glob(root + "/usr/bin/.nodegate*")
	require.NoError(t, err)
	assert.Equal(t, len(left), 0, "files left: %v", left)
}

// TestUnsigned: only a build that is not a tag's may be unsigned. SECURITY.md: release.
func TestUnsigned(t *testing.T) {
	t.Setenv("NODEGATE_SIGNING_KEY", "")
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	t.Setenv("VERSION", "v1.0.0")
	assert.ErrorContains(t, run(t.TempDir()+"/dist", release.all), "signing v1.0.0: set NODEGATE_SIGNING_KEY to the file", "make dist")
	for version, want := range map[string]bool{
		"v1.0.0": false, "v1.0.0-rc1": false, "v1.0.0-g1": false, "0.1.0~dev": true, "0.1.0~dev.20261129032055.abcdef12": true,
		"v1.0.0-3-gabcdef12": true, "v1.0.0-3-gabcdef12-dirty": true, "v1.0.0-dirty": true,
	} {
		assert.Equal(t, release{version: version}.checkKey() == nil, want, "%s without a key", version)
	}
	t.Setenv("NODEGATE_SIGNING_KEY", t.TempDir()+"/key")
	assert.ErrorContains(t, release{version: "0.1.0~dev"}.checkKey(), "no such file", "a key that is missing")
}
