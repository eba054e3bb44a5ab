package units

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"nodegate/internal/host/hosttest"
)

// TestWatchExposure: what systemd-analyze says about the watch unit.
func TestWatchExposure(t *testing.T) {
	hosttest.NeedProgram(t, "systemd-analyze")
	file := filepath.Join(t.TempDir(), WatchUnit)
	if err := os.WriteFile(file, watchUnit(Program{path: Binary}), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("systemd-analyze", "security", "--offline=yes", "--no-pager", file).CombinedOutput()
	if err != nil {
		t.Fatalf("systemd-analyze: %v\n%s", err, out)
	}
	m := regexp.MustCompile(`Overall exposure level for \S+ ([0-9.]+)`).FindSubmatch(out)
	if m == nil {
		t.Fatalf("no exposure level in:\n%s", out)
	}
	if level, err := strconv.ParseFloat(string(m[1]), 64); err != nil || level > 3.5 {
		t.Errorf("exposure is %s, more than 3.5:\n%s", m[1], out)
	}
	t.Logf("exposure %s", m[1])
}
