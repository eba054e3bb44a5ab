package units_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nodegate/internal/assert"
	"nodegate/internal/host/tree"
	"nodegate/internal/require"
	"nodegate/policy"
	"nodegate/units"
)

// manifest returns the type, mode, owner, time and content of everything in a tree.
func manifest(t *testing.T, root string) string {
	t.Helper()
	var lines []string
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		line := fmt.Sprintf("%s %s %d:%d", strings.TrimPrefix(p, root)+"/", info.Mode(), st.Uid, st.Gid)
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(p)
			if err != nil {
				return err
			}
			line += " -> " + to
		case info.Mode().IsRegular():
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %x %s", sha256.Sum256(b), info.ModTime())
		}
		lines = append(lines, line)
		return nil
	})
	require.NoError(t, err)
	return strings.Join(lines, "\n")
}

// inMemory creates an empty tree in memory, if possible. These tests flush thousands of files, and do not depend on a disk.
func inMemory(t *testing.T) string {
	t.Helper()
	root, err := os.MkdirTemp("/dev/shm", "nodegate")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(root)) })
	return root
}

// node creates a tree with files that nodegate must replace: a binary of another tool, with an
// unusual mode and owner, and a symbolic link.
func node(t *testing.T) string {
	t.Helper()
	root := inMemory(t)
	fillNode(t, root)
	return root
}

func fillNode(t *testing.T, root string) {
	t.Helper()
	for _, d := range []string{"etc/sysctl.d", "etc/systemd/system", "var/lib", "usr/local/bin"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, d), 0o755))
	}
	require.NoError(t, os.WriteFile(root+"/usr/local/bin/nodegate", []byte("an older one"), 0o700))
	require.NoError(t, os.Chmod(root+"/usr/local/bin/nodegate", 0o750|fs.ModeSetgid))
	if os.Getuid() == 0 {
		require.NoError(t, os.Chown(root+"/usr/local/bin/nodegate", 1234, 4321))
		require.NoError(t, os.Chmod(root+"/usr/local/bin/nodegate", 0o750|fs.ModeSetgid))
	}
	require.NoError(t, os.Symlink("../elsewhere.conf", root+"/etc/sysctl.d/99-zz-nodegate.conf"))
}

func open(t *testing.T, root string) *tree.Tree {
	t.Helper()
	opened, err := tree.Open(root)
	require.NoError(t, err)
	t.Cleanup(opened.Close)
	return opened
}

func files(t *testing.T, text, binary string) []units.File {
	t.Helper()
	last := binary[strings.LastIndexByte(binary, ' ')+1:]
	last = last[:min(len(last), 10)]
	texts := []policy.File{{Name: "a.hcl", Text: []byte(text)}, {Name: "b.hcl", Text: []byte("# " + last)}}
	texts = append(texts, policy.File{Name: last + ".hcl", Text: []byte("# " + last)})
	return filesOf(t, units.Copied([]byte(binary)), texts...)
}

func filesOf(t *testing.T, program units.Program, texts ...policy.File) []units.File {
	t.Helper()
	p, diags := policy.Load(texts, policy.Options{})
	require.True(t, !diags.HasErrors(), "%v", diags)
	f, err := units.Files(p, texts, program)
	require.NoError(t, err)
	return f
}

const (
	policyOne = `module "overlay" {}
sysctl "net.bridge.bridge-nf-call-iptables" { value = 1 }
sysctl "fs.inotify.max_user_instances" { min = 512 }
`
	policyTwo = `sysctl "kernel.panic" { value = 10 }
gate { unit = "k3s.service" }
publish {}
`
)

func TestInstallAndUninstall(t *testing.T) {
	root := node(t)
	tree := open(t, root)
	before := manifest(t, root)
	one, two := files(t, policyOne, "binary one"), files(t, policyTwo, "binary two")

	planned, err := units.Plan(tree, one, false)
	require.NoError(t, err)
	after := manifest(t, root)
	require.True(t, after == before, "Plan changed the tree:\n%s", cmp.Diff(before, after))
	done, err := units.Install(tree, one, false)
	require.NoError(t, err)
	assert.Diff(t, done, planned, "Install differs from Plan")
	installed := manifest(t, root)
	if again, err := units.Install(tree, one, false); err != nil || len(again) != 0 || manifest(t, root) != installed {
		t.Errorf("second install: %v, %v", again, err)
	}
	conf := require.ReadFile(t, root+"/etc/sysctl.d/99-zz-nodegate.conf")
	assert.Contains(t, string(conf), "net.bridge.bridge-nf-call-iptables = 1\n# fs.inotify.max_user_instances: at least 512;", "sysctl.d")
	dropIn := require.ReadFile(t, root+"/etc/systemd/system/kubelet.service.d/10-nodegate.conf")
	assert.Contains(t, string(dropIn), "\nTimeoutStartSec=150s\n", "the drop-in does not wait longer than the budget of 2 minutes")
	modules, err := os.ReadFile(root + "/etc/modules-load.d/nodegate.conf")
	require.NoError(t, err)
	assert.True(t, strings.HasSuffix(string(modules), "overlay\nbr_netfilter\n"), "modules-load.d:\n%s", modules)

	// Another policy, for another unit: the old drop-in goes.
	_, err = units.Install(tree, two, false)
	require.NoError(t, err)
	_, err = os.Stat(root + "/etc/systemd/system/kubelet.service.d/10-nodegate.conf")
	assert.True(t, errors.Is(err, fs.ErrNotExist), "the drop-in of the previous unit remains: %v", err)
	_, err = units.Uninstall(tree, false)
	require.NoError(t, err)
	assert.Diff(t, manifest(t, root), before, "uninstall left a difference")
	if again, err := units.Uninstall(tree, false); err != nil || len(again) != 0 {
		t.Errorf("second uninstall: %v, %v", again, err)
	}
}

func TestChangedFile(t *testing.T) {
	root := node(t)
	tree := open(t, root)
	before := manifest(t, root)
	_, err := units.Install(tree, files(t, policyOne, "one"), false)
	require.NoError(t, err)
	changed := []string{root + "/etc/nodegate/policy.d/a.hcl", root + "/etc/modules-load.d/nodegate.conf"}
	for _, f := range changed {
		require.NoError(t, os.WriteFile(f, []byte("mine"), 0o644))
	}
	now := manifest(t, root)
	for what, try := range map[string]func(bool) error{
		"uninstall": func(force bool) error { _, err := units.Uninstall(tree, force); return err },
		"install":   func(force bool) error { _, err := units.Install(tree, files(t, policyTwo, "two"), force); return err },
	} {
		err := try(false)
		for _, f := range changed {
			assert.True(t, err != nil && strings.Count(err.Error(), f+" has changed since") == 1,
				"the error of %s does not name %s once: %v", what, f, err)
		}
		assert.Diff(t, manifest(t, root), now, "%s refused, but changed the tree", what)
	}
	_, err = units.Uninstall(tree, true)
	require.NoError(t, err)
	assert.Diff(t, manifest(t, root), before, "uninstall --force left a difference")
}

// TestEditedInPlace: an operator edits the installed policy and installs it again. Nothing would be
// lost, so install accepts it, and uninstall treats the file as nodegate's.
func TestEditedInPlace(t *testing.T) {
	root := node(t)
	tree := open(t, root)
	before := manifest(t, root)
	_, err := units.Install(tree, files(t, policyOne, "one"), false)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(root+"/etc/nodegate/policy.d/a.hcl", []byte(policyTwo), 0o644))
	_, err = units.Install(tree, files(t, policyTwo, "one"), false)
	require.NoError(t, err)
	if again, err := units.Install(tree, files(t, policyTwo, "one"), false); err != nil || len(again) != 0 {
		t.Errorf("the second time: %v, %v", again, err)
	}
	_, err = units.Uninstall(tree, false)
	require.NoError(t, err)
	assert.Diff(t, manifest(t, root), before, "uninstall left a difference")
}

// TestNothingLeavesTheRoot: SECURITY.md: tree.
func TestNothingLeavesTheRoot(t *testing.T) {
	outside := t.TempDir()
	for name, prepare := range map[string]func(root string) error{
		"a directory that is an absolute link": func(root string) error { return os.Symlink(outside, root+"/etc/nodegate") },
		"a directory that is a link upwards":   func(root string) error { return os.Symlink("../../../../"+outside, root+"/etc/nodegate") },
		"a file where a directory goes":        func(root string) error { return os.WriteFile(root+"/etc/nodegate", nil, 0o644) },
		"a directory where a file goes": func(root string) error {
			return os.MkdirAll(root+"/etc/modules-load.d/nodegate.conf/x", 0o755)
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := node(t)
			require.NoError(t, prepare(root))
			before := manifest(t, root)
			_, err := units.Install(open(t, root), files(t, policyOne, "one"), false)
			assert.ErrorContains(t, err, root+"/etc/", "the error names no path")
			assert.Diff(t, manifest(t, root), before, "it failed, but changed the tree")
			names, _ := os.ReadDir(outside)
			assert.True(t, len(names) == 0, "it wrote outside the root: %v", names)
		})
	}
}
