package export

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"nodegate/host/hosttest"
)

// TestUnitsVerify asks systemd whether it understands the units and drop-ins that
// are carried, the fetching one among them.
func TestUnitsVerify(t *testing.T) {
	hosttest.NeedProgram(t, "systemd-analyze")
	for name, d := range deliveries() {
		n, err := input(t, testPolicy, d).node("kops")
		if err != nil {
			t.Fatal(err)
		}
		root := t.TempDir()
		args := []string{"verify", "--man=no", root + systemDir + "k3s.service"}
		put := func(path, text string) {
			t.Helper()
			if err := os.MkdirAll(filepath.Dir(root+path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(root+path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		put(systemDir+"k3s.service", "[Service]\nExecStart=/bin/true\n")
		for _, u := range n.units {
			put(systemDir+u.name, u.text)
			args = append(args, root+systemDir+u.name)
		}
		for _, f := range n.files {
			put(f.Path, string(f.Content))
		}
		cmd := exec.CommandContext(t.Context(), "systemd-analyze", args...)
		cmd.Env = append(slices.Clone(os.Environ()), "SYSTEMD_UNIT_PATH="+root+systemDir+":")
		out, _ := cmd.CombinedOutput()
		for line := range strings.Lines(string(out)) {
			// The binary is not on this machine.
			if (strings.Contains(line, "nodegate") || strings.Contains(line, "k3s")) && !strings.Contains(line, "is not executable") && !strings.Contains(line, "Failed to create") {
				t.Errorf("%s: systemd-analyze verify: %s", name, line)
			}
		}
	}
}

// TestNoCycle: nothing that comes before the network waits for what comes after
// it: systemd would drop one of them from the boot.
func TestNoCycle(t *testing.T) {
	for name, d := range deliveries() {
		n, err := input(t, testPolicy, d).node("kops")
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range n.units {
			if u.name != fetchUnit && strings.Contains(u.text, fetchUnit) {
				t.Errorf("%s: %s names %s", name, u.name, fetchUnit)
			}
		}
		for _, f := range n.files {
			if strings.HasSuffix(f.Path, ".conf") && strings.Contains(string(f.Content), fetchUnit) {
				t.Errorf("%s: %s names %s", name, f.Path, fetchUnit)
			}
		}
	}
}
