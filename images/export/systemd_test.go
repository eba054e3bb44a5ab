package export

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"nodegate/internal/host/hosttest"
	"nodegate/units"
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
			if (strings.Contains(line, "nodegate") || strings.Contains(line, "k3s")) && !strings.Contains(line, "is not executable") &&
				!strings.Contains(line, "Failed to create") {
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

// TestNothingRunsUnverified: where the node fetches the binary, every unit that
// runs it asks first, and the gate is the one that asks.
func TestNothingRunsUnverified(t *testing.T) {
	for _, name := range []string{"url", "image"} {
		n, err := input(t, testPolicy, deliveries()[name]).node("kops")
		if err != nil {
			t.Fatal(err)
		}
		files := map[string]string{}
		for _, f := range n.files {
			files[f.Path] = string(f.Content)
		}
		if after := strings.Contains(n.units[0].text, "\nAfter=network-online.target containerd.service\n"); n.units[0].name != fetchUnit ||
			after != (name == "image") {
			t.Errorf("%s: the first unit is\n%s", name, n.units[0].text)
		}
		asked := 0
		for _, u := range n.units {
			condition := files[systemDir+u.name+".d/10-nodegate-fetch.conf"]
			ask := "=/bin/sh " + fetchFile + " check\n" // ExecCondition= is not in systemd before 244
			if u.name != fetchUnit && strings.Contains(condition, "\nExecCondition"+ask) && strings.Contains(condition, "\nExecStartPre"+ask) {
				asked++
			}
		}
		if asked != len(n.units)-1 || asked < 2 {
			t.Errorf("%s: %d of %d units ask", name, asked, len(n.units)-1)
		}
		if gate := string(n.dropIn.Content); !strings.Contains(gate, "\nExecStartPre=+/bin/sh "+fetchFile+" gate\n") ||
			strings.Contains(gate, units.Binary) {
			t.Errorf("%s: the gate is\n%s", name, gate)
		}
	}
}
