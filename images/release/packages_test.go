//go:build release

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

const (
	wants     = "/etc/systemd/system/multi-user.target.wants/"
	dropIn    = "/etc/systemd/system/kubelet.service.d/10-nodegate.conf"
	takesOver = "/usr/bin/nodegate install" // the package prints this if another copy is in force
	ownPolicy = "/etc/nodegate/policy.d/mine.hcl"
)

// TestDeb installs, puts in force, upgrades, removes and purges the package with the real dpkg. Nothing may be left, and kubelet must
// never depend on a missing binary.
func TestDeb(t *testing.T) {
	hosttest.NeedRoot(t)
	r := releaseMade(t)
	root := tree(t)
	before := picture(t, root)
	say(t, "cp", r.the(t, "*_amd64.deb"), root+"/root/one.deb")
	newer(t, root)

	say(t, "cp", "-r", r.dir, root+"/root/dist")
	install := regexp.MustCompile(`(?m)^apt install \./\S+`).FindString(string(require.ReadFile(t, repository+"/README.md")))
	sayIn(t, root, "sh", "-euc", "cd /root; "+strings.Replace(install, "apt", "apt-get --yes --quiet -o Dpkg::Use-Pty=0", 1))
	for _, early := range []string{dropIn, wants + "nodegate-apply.service", wants + "nodegate-watch.service"} {
		_, err := os.Lstat(root + early)
		require.True(t, err != nil, "%s is there before anybody asked for it", early)
	}
	sayIn(t, root, "nodegate", "install")
	held(t, root, "one")
	code, out := in(t, root, "nodegate", "check", "--stage", "image")
	assert.True(t, code == 0, "the image does not hold:\n%s", out)
	_, err := os.Lstat(root + "/usr/local/bin/nodegate")
	assert.True(t, err != nil, "the package's binary was copied")

	if out := sayIn(t, root, "dpkg", "-i", "/root/two.deb"); strings.Contains(out, takesOver) {
		t.Errorf("the package in force offers to take over:\n%s", out)
	}
	held(t, root, "two")

	write(t, root+ownPolicy, "newer {}\n")
	if code, out := in(t, root, "dpkg", "-i", "/root/one.deb"); code == 0 || !strings.Contains(out, ownPolicy+":1:1: Unsupported block type") {
		t.Errorf("under a newer policy: exit status %d\n%s", code, out)
	}
	held(t, root, "two")
	require.NoError(t, os.Remove(root+ownPolicy))
	sayIn(t, root, "dpkg", "--configure", "nodegate")
	held(t, root, "one")
	sayIn(t, root, "dpkg", "-i", "/root/two.deb")

	write(t, root+ownPolicy, "use \"kubernetes\" {}\n")
	sayIn(t, root, "dpkg", "-r", "nodegate")
	for _, gone := range []string{dropIn, "/usr/bin/nodegate", wants + "nodegate-apply.service", wants + "nodegate-watch.service"} {
		_, err := os.Lstat(root + gone)
		assert.True(t, err != nil, "%s is left after removal", gone)
	}
	_, err = os.Lstat(root + ownPolicy)
	assert.NoError(t, err, "the removal deleted the administrator's policy")
	sayIn(t, root, "dpkg", "-P", "nodegate")
	assert.Diff(t, picture(t, root), before, "after purge (-before +after)")
}

// TestLintian: lintian finds no error in the package, and every tag is covered by the overrides.
func TestLintian(t *testing.T) {
	hosttest.NeedProgram(t, "lintian")
	r := releaseMade(t)
	code, out := try(t, "lintian", "--allow-root", "--fail-on", "error,warning", r.the(t, "*_amd64.deb"))
	assert.True(t, code == 0, "exit status %d:\n%s", code, out)
}

// TestVersion: a release has the version of its tag. Without a tag the version is the changelog's, with the commit and its time. dpkg and
// rpm sort later commits later, and all of them before the release.
func TestVersion(t *testing.T) {
	dir := t.TempDir()
	say(t, "cp", repository+"/Makefile", dir)
	write(t, dir+"/CHANGELOG.md", "# Changelog\n\n## 1.0.0 - unreleased\n\n## 0.9.0 - 2026-01-01\n")
	git := func(args ...string) {
		t.Helper()
		say(t, "env", append([]string{"GIT_CONFIG_GLOBAL=/dev/null", "git", "-C", dir, "-c", "user.name=x", "-c", "user.email=x@localhost"},
			args...)...)
	}
	commit := func(when string) {
		t.Helper()
		t.Setenv("GIT_COMMITTER_DATE", when)
		git("commit", "--allow-empty", "-qm", when)
	}
	version := func() string {
		t.Helper()
		out := say(t, "env", "-u", "VERSION", "-u", "MAKEFLAGS", "make", "-n", "-C", dir, "dist")
		return regexp.MustCompile(`VERSION='(.*?)'`).FindStringSubmatch(out)[1]
	}
	git("init", "-q")
	git("add", "Makefile")
	commit("2026-11-23T01:02:03+0900")
	first := version()
	assert.True(t, regexp.MustCompile(`^1\.0\.0~dev\.20261122160203\.[0-9a-f]{7,}$`).MatchString(first), "without a tag: %s", first)
	commit("2026-11-23T01:02:04+0900")
	second := version()
	git("tag", "v1.0.0")
	tagged := version()
	commit("2026-11-23T01:02:05+0900")
	later := version()
	assert.True(t, tagged == "v1.0.0" && strings.HasPrefix(later, "v1.0.0-1-g"), "with a tag: %s; after it: %s", tagged, later)
	sorted := []string{first, second, tagged, later}
	for i := range sorted[1:] {
		before, after := packageVersion(sorted[i]), packageVersion(sorted[i+1])
		say(t, "dpkg", "--compare-versions", before, "lt", after)
		out := say(t, "rpm", "--eval", fmt.Sprintf("%%{lua:print(rpm.vercmp(%q, %q))}", before, after))
		assert.True(t, strings.TrimSpace(out) == "-1", "rpm sorts %s before %s: %s", after, before, out)
	}
}

// TestDebRefuses: if uninstall refuses because a file was changed, the complete package stays.
func TestDebRefuses(t *testing.T) {
	hosttest.NeedRoot(t)
	r := releaseMade(t)
	root := tree(t)
	say(t, "cp", r.the(t, "*_amd64.deb"), root+"/root/one.deb")
	sayIn(t, root, "dpkg", "-i", "/root/one.deb")
	sayIn(t, root, "nodegate", "install")
	text, err := os.ReadFile(root + dropIn)
	require.NoError(t, err)
	write(t, root+dropIn, string(text)+"# mine\n")
	code, out := in(t, root, "dpkg", "-r", "nodegate")
	assert.True(t, code != 0 && strings.Contains(out, "has changed since nodegate wrote it"), "exit status %d:\n%s", code, out)
	held(t, root, "one")
	sayIn(t, root, "nodegate", "uninstall", "--force")
	sayIn(t, root, "dpkg", "-P", "nodegate")

	// Units that were enabled with systemctl must not stay enabled.
	sayIn(t, root, "dpkg", "-i", "/root/one.deb")
	sayIn(t, root, "systemctl", "enable", "nodegate-apply.service")
	sayIn(t, root, "dpkg", "-P", "nodegate")
	_, err = os.Lstat(root + wants + "nodegate-apply.service")
	assert.True(t, err != nil, "a unit that is gone is enabled")

	// The package leaves an installation with its own binary alone.
	sayIn(t, root, "dpkg", "-i", "/root/one.deb")
	other := filepath.Join(root, "root", "nodegate")
	say(t, "cp", r.the(t, "nodegate-linux-amd64"), other)
	write(t, other, string(require.ReadFile(t, other))+"another\n")
	sayIn(t, root, "/root/nodegate", "install")
	assert.Contains(t, sayIn(t, root, "dpkg", "-i", "/root/one.deb"), takesOver, "the package does not say that it is not in force")
	sayIn(t, root, "dpkg", "-P", "nodegate")
	assert.Contains(t, string(require.ReadFile(t, root+dropIn)), "exec /usr/local/bin/nodegate gate",
		"the package took an installation away that did not need it")
	sayIn(t, root, "/usr/local/bin/nodegate", "check", "--stage", "image")

	// It also leaves an export alone, which lacks a journal, if the export has its own program.
	journal := root + "/var/lib/nodegate/journal.json"
	say(t, "mv", journal, root+"/root/journal.json")
	sayIn(t, root, "dpkg", "-i", "/root/one.deb")
	sayIn(t, root, "dpkg", "-P", "nodegate")
	_, err = os.Lstat(root + "/etc/nodegate/policy.d/kubernetes.hcl")
	assert.NoError(t, err, "the package took the policy of an export away")
	// If the export uses the package's program, it must be removed first.
	sayIn(t, root, "dpkg", "-i", "/root/one.deb")
	gate := string(require.ReadFile(t, root+dropIn))
	write(t, root+dropIn, strings.ReplaceAll(gate, "/usr/local/bin/nodegate", "/usr/bin/nodegate"))
	if code, out := in(t, root, "dpkg", "-r", "nodegate"); code == 0 || !strings.Contains(out, "remove that file first") {
		t.Errorf("exit status %d:\n%s", code, out)
	}
	held(t, root, "one")
	write(t, root+dropIn, gate)
	sayIn(t, root, "dpkg", "-P", "nodegate")
	say(t, "mkdir", "-p", filepath.Dir(journal))
	say(t, "mv", root+"/root/journal.json", journal)

	// On request the package takes over, and can then be removed.
	sayIn(t, root, "dpkg", "-i", "/root/one.deb")
	sayIn(t, root, strings.Fields(takesOver)...)
	held(t, root, "one")
	_, err = os.Lstat(root + "/usr/local/bin/nodegate")
	assert.True(t, err != nil, "two programs are installed")
	sayIn(t, root, "dpkg", "-P", "nodegate")
	_, err = os.Lstat(root + dropIn)
	assert.True(t, err != nil, "the gate calls a program that is gone")
}

// TestRPM: the same steps with the real rpm.
func TestRPM(t *testing.T) {
	hosttest.NeedRoot(t)
	hosttest.NeedProgram(t, "rpm")
	r := releaseMade(t)
	root := tree(t)
	before := picture(t, root)
	pkg := r.the(t, "*.x86_64.rpm")
	say(t, "rpm", "--root", root, "--nodeps", "-i", pkg) // another package manager has installed kmod
	sayIn(t, root, "nodegate", "install")
	held(t, root, "one")
	say(t, "rpm", "--root", root, "--nodeps", "-U", "--force", pkg)
	held(t, root, "one")
	say(t, "rpm", "--root", root, "-e", "nodegate")
	// The directories below /usr/share belong to another package on an RPM system; in a Debian tree rpm does not know their owner.
	after := slices.DeleteFunc(picture(t, root), func(line string) bool {
		return strings.HasPrefix(line, "/usr/share/") && strings.HasSuffix(line, " drwxr-xr-x") && !slices.Contains(before, line)
	})
	assert.Diff(t, after, before, "after erasing (-before +after)")
}

// newer builds a second version of the package into the tree; its binary reports that version.
func newer(t *testing.T, root string) {
	t.Helper()
	dir := filepath.Join(root, "root", "two")
	say(t, "dpkg-deb", "-R", root+"/root/one.deb", dir)
	control := filepath.Join(dir, "DEBIAN", "control")
	write(t, control, strings.Replace(string(require.ReadFile(t, control)), "Version: 1.0.0", "Version: 1.0.1", 1))
	binary := dir + "/usr/bin/nodegate"
	write(t, binary, string(require.ReadFile(t, binary))+"two\n")
	say(t, "dpkg-deb", "-b", dir, root+"/root/two.deb")
}

// held fails unless kubelet's drop-in calls the package's binary of that version.
func held(t *testing.T, root, version string) {
	t.Helper()
	require.True(t, strings.Contains(string(require.ReadFile(t, root+dropIn)), "exec /usr/bin/nodegate gate"),
		"%s does not call the package's binary", dropIn)
	is := strings.HasSuffix(string(require.ReadFile(t, root+"/usr/bin/nodegate")), "two\n")
	assert.True(t, is == (version == "two"), "the binary is not that of version %s", version)
	sayIn(t, root, "/usr/bin/nodegate", "version")
}

// write replaces the content of a file and keeps its mode.
func write(t *testing.T, name, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
}
