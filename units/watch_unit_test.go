package units

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
	"nodegate/policy"
)

// TestExposure checks the exposure level that systemd-analyze computes for each unit.
func TestExposure(t *testing.T) {
	hosttest.NeedProgram(t, "systemd-analyze")
	prog := Program{path: Binary}
	exposure(t, WatchUnit, watchUnit(prog), 3.5)
	exposure(t, ApplyUnit, applyUnit(policy.Gate{Unit: "kubelet.service"}, prog), 4.7)
}

func exposure(t *testing.T, unit string, text []byte, most float64) {
	t.Helper()
	file := filepath.Join(t.TempDir(), unit)
	require.NoError(t, os.WriteFile(file, text, 0o644))
	out, err := exec.Command("systemd-analyze", "security", "--offline=yes", "--no-pager", file).CombinedOutput()
	require.True(t, err == nil, "systemd-analyze: %v\n%s", err, out)
	m := regexp.MustCompile(`Overall exposure level for \S+ ([0-9.]+)`).FindSubmatch(out)
	require.True(t, m != nil, "no exposure level in:\n%s", out)
	if level, err := strconv.ParseFloat(string(m[1]), 64); err != nil || level > most {
		t.Errorf("%s: the exposure %s exceeds %.1f:\n%s", unit, m[1], most, out)
	}
	t.Logf("%s: exposure %s", unit, m[1])
}
