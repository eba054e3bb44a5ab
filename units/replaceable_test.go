package units_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
	"nodegate/units"
)

// inMounts calls do in its own mount namespace, which ends with it.
func inMounts(t *testing.T, do func()) {
	t.Helper()
	hosttest.NeedRoot(t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // never unlocked: the thread and its namespace end here
		err := unix.Unshare(unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		if err != nil {
			t.Error(err)
			return
		}
		do()
	}()
	<-ended
}

func chattr(t *testing.T, flag, name string) {
	t.Helper()
	hosttest.NeedProgram(t, "chattr")
	out, err := exec.CommandContext(t.Context(), "chattr", flag, name).CombinedOutput()
	assert.True(t, err == nil, "chattr %s %s: %v: %s", flag, name, err, out)
}

// TestUnreplaceable: a target that root cannot replace is found before the first write, by install, upgrade and uninstall,
// and so are all others. Then nothing changes. SECURITY.md: atomic.
func TestUnreplaceable(t *testing.T) {
	hosttest.NeedRoot(t)
	hosttest.NeedProgram(t, "chattr")
	const dropIn, wants = "/etc/systemd/system/kubelet.service.d/10-nodegate.conf", "/etc/systemd/system/multi-user.target.wants"
	onItself := func(t *testing.T, p string) { require.NoError(t, unix.Mount(p, p, "", unix.MS_BIND, "")) }
	readOnly := func(t *testing.T, p string) {
		onItself(t, p)
		require.NoError(t, unix.Mount("", p, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	}
	for _, c := range []struct {
		what, target string
		file         bool // with this content before
		spoil        func(t *testing.T, p string)
		want         string
	}{
		{"immutable file", dropIn, true, func(t *testing.T, p string) { chattr(t, "+i", p) }, "is immutable and cannot change; run `chattr -i "},
		{"append-only file", dropIn, true, func(t *testing.T, p string) { chattr(t, "+a", p) }, "is append-only and cannot change; run `chattr -a "},
		{"immutable directory", wants, false, func(t *testing.T, p string) { chattr(t, "+i", p) }, "is immutable and cannot change"},
		{"append-only directory", wants, false, func(t *testing.T, p string) { chattr(t, "+a", p) }, "is append-only and cannot change"},
		{"immutable directory above", "/etc", false, func(t *testing.T, p string) { chattr(t, "+i", p) }, "is immutable and cannot change"},
		{"file bind-mounted on itself", dropIn, true, onItself, "is a mount point and cannot be replaced; run `umount "},
		{"read-only mount", "/usr/local", false, readOnly, "read-only file system; mount it writable"},
		{"read-only directory of units", wants, false, readOnly, "read-only file system; mount it writable"},
	} {
		t.Run(c.what, func(t *testing.T) {
			one, two := files(t, policyOne, "binary one"), files(t, policyOne+"# changed\n", "binary two")
			for _, stage := range []string{"install", "upgrade", "uninstall"} {
				if c.target == "/etc" && stage == "upgrade" {
					continue // writes only in directories below it
				}
				root := t.TempDir() // a file system in memory has no attributes before Linux 6.6
				fillNode(t, root)
				p := root + c.target
				if c.file {
					require.NoError(t, os.MkdirAll(filepath.Dir(p), 0o755))
					require.NoError(t, os.WriteFile(p, []byte("of the operator"), 0o644))
				} else {
					require.NoError(t, os.MkdirAll(p, 0o755))
				}
				tree := open(t, root)
				if stage != "install" {
					require.NoError(t, reinstall(tree, one))
				}
				if stage == "upgrade" { // so that the target changes
					require.NoError(t, os.RemoveAll(root+"/etc/systemd/system/multi-user.target.wants/nodegate-apply.service"))
					two = append(two[:len(two)-1], units.File{Path: dropIn, Mode: 0o644, Content: []byte("new")})
				}
				before := manifest(t, root)
				inMounts(t, func() {
					c.spoil(t, p)
					tree := open(t, root) // in this namespace
					var err, planned error
					if stage == "uninstall" {
						_, err = units.Uninstall(tree, false)
					} else {
						_, planned = units.Plan(tree, two, false)
						_, err = units.Install(tree, two, false)
						assert.True(t, planned != nil && err != nil && planned.Error() == err.Error(), "%s: planned %v, installed %v", stage, planned, err)
					}
					if err == nil || !strings.Contains(err.Error(), c.want) {
						t.Errorf("%s: %v", stage, err)
					} else if strings.Count(err.Error(), c.want) > strings.Count(err.Error(), "\n")+1 {
						t.Errorf("%s repeats an error: %v", stage, err)
					}
				})
				chattr(t, "-ia", p)
				assert.Diff(t, manifest(t, root), before, "%s changed the tree", stage)
			}
		})
	}
}

// TestUnreplaceableTogether: one run reports every target that cannot be replaced.
func TestUnreplaceableTogether(t *testing.T) {
	hosttest.NeedRoot(t)
	root := t.TempDir()
	fillNode(t, root)
	chattr(t, "+i", root+"/usr/local/bin/nodegate")
	chattr(t, "+i", root+"/etc/sysctl.d")
	defer chattr(t, "-i", root+"/usr/local/bin/nodegate")
	defer chattr(t, "-i", root+"/etc/sysctl.d")
	err := reinstall(open(t, root), files(t, policyOne, "one"))
	assert.True(t, err != nil && strings.Count(err.Error(), "is immutable and cannot change") == 2, "got %v", err)
}
