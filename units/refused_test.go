package units_test

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
	"nodegate/units"
)

// TestFullRoot: SECURITY.md: atomic.
func TestFullRoot(t *testing.T) {
	hosttest.NeedRoot(t)
	root := t.TempDir()
	require.NoError(t, syscall.Mount("none", root, "tmpfs", 0, "size=64k"))
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(root, syscall.MNT_DETACH)) })
	require.NoError(t, os.MkdirAll(root+"/var/lib", 0o755))
	before := manifest(t, root)
	_, err := units.Install(open(t, root), files(t, policyOne, strings.Repeat("x", 1<<20)), false)
	assert.True(t, errors.Is(err, syscall.ENOSPC) && strings.Contains(err.Error(), root+"/usr/local/bin/nodegate"), "a full root: %v", err)
	assert.Diff(t, manifest(t, root), before, "it failed, but changed the tree")
}

func TestReadOnlyRoot(t *testing.T) {
	hosttest.NeedRoot(t)
	root := t.TempDir()
	require.NoError(t, syscall.Mount("none", root, "tmpfs", syscall.MS_RDONLY, ""))
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(root, syscall.MNT_DETACH)) })
	_, err := units.Install(open(t, root), files(t, policyOne, "one"), false)
	assert.True(t, errors.Is(err, syscall.EROFS) && strings.Contains(err.Error(), root+"/"), "a read-only root: %v", err)
}

// TestSecondInstaller: a second install is refused while the first one runs. SECURITY.md: atomic.
func TestSecondInstaller(t *testing.T) {
	root := node(t)
	first := open(t, root)
	release, err := first.Lock("/var/lib/.nodegate.lock")
	require.NoError(t, err)
	_, err = units.Install(open(t, root), files(t, policyOne, "one"), false)
	assert.ErrorContains(t, err, "another nodegate is installing", "while another one installs")
	require.NoError(t, release())
	_, err = units.Install(open(t, root), files(t, policyOne, "one"), false)
	require.NoError(t, err)
}

// TestDirectoryRemoved: if a directory was removed with a file that install replaced, uninstall creates it again.
func TestDirectoryRemoved(t *testing.T) {
	root := node(t)
	tree := open(t, root)
	before := manifest(t, root)
	_, err := units.Install(tree, files(t, policyOne, "one"), false)
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(root+"/etc/sysctl.d"))
	require.NoError(t, os.RemoveAll(root+"/usr"))
	_, err = units.Uninstall(tree, false)
	assert.ErrorContains(t, err, "has changed since nodegate wrote it", "uninstall")
	_, err = units.Uninstall(tree, true)
	require.NoError(t, err)
	assert.Diff(t, manifest(t, root), before, "uninstalled")
}
