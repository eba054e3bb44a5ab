package tree_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/host/tree"
	"nodegate/internal/require"
)

// TestLabels: on a kernel without SELinux, new objects of an image get the label of their directory, and a replaced file keeps its own.
func TestLabels(t *testing.T) {
	hosttest.NeedRoot(t)
	_, err := os.Stat("/sys/fs/selinux/enforce")
	hosttest.Need(t, os.IsNotExist(err), "a kernel without SELinux, which labels files itself")
	root := t.TempDir()
	const selinux, inherited = "security.selinux", "system_u:object_r:etc_t:s0"
	label := func(p string) string {
		b := make([]byte, 100)
		n, err := unix.Lgetxattr(filepath.Join(root, p), selinux, b)
		if err != nil {
			return err.Error()
		}
		return string(b[:n])
	}
	set := func(p, label string) {
		err := unix.Lsetxattr(filepath.Join(root, p), selinux, []byte(label), 0)
		hosttest.Need(t, err == nil, "a temporary directory that accepts labels")
	}
	set("", inherited)
	require.NoError(t, os.WriteFile(root+"/old", []byte("old"), 0o600))
	set("old", "system_u:object_r:net_conf_t:s0")
	tr, err := tree.Open(root)
	require.NoError(t, err)
	defer tr.Close()
	stage := func(p string, err error) {
		if err == nil {
			err = tr.Commit(p)
		}
		assert.NoError(t, err)
	}
	stage("/old", tr.StageFile("/old", []byte("new"), 0o644))
	stage("/link", tr.StageLink("/link", "old"))
	assert.NoError(t, tr.Mkdir("/dir", 0o755))
	stage("/dir/file", tr.StageFile("/dir/file", []byte("new"), 0o644))
	set("dir", "system_u:object_r:bin_t:s0")
	copied, err := tr.StageDir("/dir")
	assert.NoError(t, err)
	for p, want := range map[string]string{
		"old": "system_u:object_r:net_conf_t:s0", "link": inherited, "dir/file": inherited, copied: "system_u:object_r:bin_t:s0",
	} {
		assert.Equal(t, label(p), want, "%s", p)
	}
}
