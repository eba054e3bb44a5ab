package export

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

const sysfsPolicy = `
sysfs "kernel/mm/transparent_hugepage/enabled" { value = "madvise" }
sysfs "block/*/queue/scheduler" { value = "none" }
sysfs "block/sda/queue/nr_requests" { min = 64 }
`

// TestSysfs: tmpfiles.d carries values and globs.
func TestSysfs(t *testing.T) {
	files := writeFormat(t, "files", loadInput(t, sysfsPolicy, Delivery{}))
	var conf string
	for _, f := range files.Tree {
		if f.Path == "etc/tmpfiles.d/99-zz-nodegate.conf" {
			conf = string(f.Content)
		}
	}
	lines := "w /sys/kernel/mm/transparent_hugepage/enabled - - - - madvise\nw /sys/block/*/queue/scheduler - - - - none\n"
	if !strings.HasSuffix(conf, lines) || !strings.Contains(conf, "NOT HERE: sysfs.block/sda/queue/nr_requests: at least 64") {
		t.Errorf("tmpfiles.d:\n%s", conf)
	}
}

// TestTmpfiles: systemd-tmpfiles writes the values as they are.
func TestTmpfiles(t *testing.T) {
	hosttest.NeedProgram(t, "systemd-tmpfiles")
	root := t.TempDir()
	name := filepath.Join(root, "value")
	for _, value := range []string{"madvise", "100%", `a\tb "c"`} {
		require.NoError(t, os.WriteFile(name, nil, 0o600))
		conf := filepath.Join(root, "x.conf")
		text := strings.ReplaceAll(string(tmpfiles("", []sysctl{{"/sys/value", value}})), "/sys/value", root+"/val*")
		require.NoError(t, os.WriteFile(conf, []byte(text), 0o600))
		if out, err := exec.Command("systemd-tmpfiles", "--create", conf).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		got, err := os.ReadFile(name)
		require.NoError(t, err)
		assert.Diff(t, string(got), value)
	}
}
