package export

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
	"nodegate/units"
)

// TestUnitsVerify runs systemd-analyze verify on the exported units and drop-ins, including the unit
// that fetches the binary.
func TestUnitsVerify(t *testing.T) {
	hosttest.NeedProgram(t, "systemd-analyze")
	for name, d := range deliveries() {
		n, err := loadInput(t, testPolicy, d).buildNode("kops")
		require.NoError(t, err)
		root := t.TempDir()
		args := []string{"verify", "--man=no", root + systemDir + "k3s.service"}
		put := func(path, text string) {
			t.Helper()
			require.NoError(t, os.MkdirAll(filepath.Dir(root+path), 0o755))
			require.NoError(t, os.WriteFile(root+path, []byte(text), 0o644))
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
			// This machine lacks the binary, so "not executable" is expected.
			if (strings.Contains(line, "nodegate") || strings.Contains(line, "k3s")) && !strings.Contains(line, "is not executable") &&
				!strings.Contains(line, "Failed to create") {
				t.Errorf("%s: systemd-analyze verify: %s", name, line)
			}
		}
	}
}

// TestNoCycle: no unit that starts before the network waits for the fetch unit, which starts after it.
// systemd would drop one of them from the boot.
func TestNoCycle(t *testing.T) {
	for name, d := range deliveries() {
		n, err := loadInput(t, testPolicy, d).buildNode("kops")
		require.NoError(t, err)
		for _, u := range n.units {
			assert.True(t, u.name == fetchUnit || !strings.Contains(u.text, fetchUnit), "%s: %s names %s", name, u.name, fetchUnit)
		}
		for _, f := range n.files {
			if strings.HasSuffix(f.Path, ".conf") && strings.Contains(string(f.Content), fetchUnit) {
				t.Errorf("%s: %s names %s", name, f.Path, fetchUnit)
			}
		}
	}
}

// TestNothingRunsUnverified: if the node fetches the binary, every unit that runs it verifies it first,
// and so does the gate.
func TestNothingRunsUnverified(t *testing.T) {
	for _, name := range []string{"url", "image"} {
		n, err := loadInput(t, testPolicy, deliveries()[name]).buildNode("kops")
		require.NoError(t, err)
		files := map[string]string{}
		for _, f := range n.files {
			files[f.Path] = string(f.Content)
		}
		if after := strings.Contains(n.units[0].text, "\nAfter=network-online.target containerd.service\n"); n.units[0].name != fetchUnit ||
			after != (name == "image") {
			t.Errorf("%s: the first unit is\n%s", name, n.units[0].text)
		}
		verified := 0
		for _, u := range n.units {
			condition := files[systemDir+u.name+".d/10-nodegate-fetch.conf"]
			check := "=/bin/sh " + fetchFile + " check\n" // systemd before 244 lacks ExecCondition=
			if u.name != fetchUnit && strings.Contains(condition, "\nExecCondition"+check) && strings.Contains(condition, "\nExecStartPre"+check) {
				verified++
			}
		}
		if verified != len(n.units)-1 || verified < 2 {
			t.Errorf("%s: %d of %d units verify the binary", name, verified, len(n.units)-1)
		}
		if gate := string(n.dropIn.Content); !strings.Contains(gate, "\nExecStartPre=+/bin/sh "+fetchFile+" gate\n") ||
			strings.Contains(gate, units.Binary) {
			t.Errorf("%s: the gate is\n%s", name, gate)
		}
	}
}
