package docs_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"nodegate/checks/catalog"
	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// TestReadme: the report in README is the output of check for the recorded node, except for the duration, and the name of the node
// in the next step.
func TestReadme(t *testing.T) {
	needNodegate(t)
	text, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	_, shown, _ := strings.Cut(string(text), "$ nodegate check\n")
	shown, _, _ = strings.Cut(shown, "```")
	out, err := exec.CommandContext(t.Context(), "nodegate", "check", "--snapshot", "testdata/readme-node.json").Output()
	var failed *exec.ExitError
	if !errors.As(err, &failed) || failed.ExitCode() != 1 {
		t.Fatalf("check: %v", err)
	}
	took := regexp.MustCompile(`, [0-9.]+(µs|ms|s)\)`)
	there := strings.NewReplacer("\nnext    on node17: ", "\nnext    ", " --snapshot testdata/readme-node.json", "").Replace(string(out))
	assert.Diff(t, took.ReplaceAllString(there, ""), took.ReplaceAllString(shown, ""))
}

// TestTroubleshooting: the checks that the rows of docs/troubleshooting.md name exist.
func TestTroubleshooting(t *testing.T) {
	text, err := os.ReadFile("troubleshooting.md")
	require.NoError(t, err)
	all, err := catalog.Explain()
	require.NoError(t, err)
	known := map[string]bool{}
	for _, e := range all {
		known[e.Name] = true
	}
	rows := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, " | ")
		if len(cells) != 4 {
			continue
		}
		rows++
		for _, name := range regexp.MustCompile("`([a-z-]+\\.[a-z_.-]+)`").FindAllStringSubmatch(cells[2], -1) {
			if !known[name[1]] && name[1] != "10-nodegate.conf" {
				t.Errorf("unknown check %s", name[1])
			}
		}
	}
	if rows < 20 {
		t.Errorf("%d rows", rows)
	}
}

// TestChanges: docs/changes.md lists every file that install writes.
func TestChanges(t *testing.T) {
	needNodegate(t)
	text, err := os.ReadFile("changes.md")
	require.NoError(t, err)
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(root+"/etc/nodegate/policy.d", 0o755))
	if err := os.Chmod(root+"/etc/nodegate/policy.d", 0o777); err != nil { // requires --allow-writable
		t.Fatal(err)
	}
	policy := "use \"kubernetes\" {}\npublish {}\naudit {}\ngate { unit_absent = \"allow\" }\n"
	require.NoError(t, os.WriteFile(root+"/node.hcl", []byte(policy), 0o644))
	out, err := exec.CommandContext(t.Context(), "nodegate", "install", "--root", root, "--policy", root+"/node.hcl", "--dry-run",
		"--allow-writable").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	found := regexp.MustCompile("(?m)^ +create +"+regexp.QuoteMeta(root)+"(/.*)$").FindAllStringSubmatch(string(out), -1)
	if len(found) < 12 {
		t.Errorf("%d files: %q", len(found), found)
	}
	for _, m := range found {
		name := m[1]
		if dir := filepath.Dir(name); dir == "/etc/nodegate/policy.d" || strings.HasSuffix(dir, ".target.wants") {
			name = filepath.Base(dir)
		}
		if !strings.Contains(string(text), filepath.Base(name)) {
			t.Errorf("docs/changes.md does not have %s", m[1])
		}
	}
}
