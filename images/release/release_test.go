//go:build release

// These tests make a whole release, twice, and then use it as people do: with
// dpkg and rpm in a real Debian tree, podman, minisign and an emulated arm64.
package main

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/e2e/vm"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

const repository = "../.."

// made is the release that the tests share, and the keys that it is signed with.
type made struct{ dir, public, secret string }

var (
	makeOnce sync.Once
	shared   made
	makeErr  error
)

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.dir != "" {
		os.RemoveAll(filepath.Dir(shared.public))
	}
	os.Exit(code)
}

// releaseMade returns the shared release. The first caller builds it.
func releaseMade(t *testing.T) made {
	t.Helper()
	hosttest.NeedProgram(t, "minisign")
	makeOnce.Do(func() {
		var scratch string
		if scratch, makeErr = os.MkdirTemp("", "nodegate-release-test-"); makeErr != nil {
			return
		}
		shared = made{filepath.Join(scratch, "checkout", "dist"), filepath.Join(scratch, "key.pub"), filepath.Join(scratch, "key")}
		if makeErr = command(exec.Command("minisign", "-G", "-W", "-p", shared.public, "-s", shared.secret)); makeErr == nil {
			makeErr = makeDist(filepath.Dir(shared.dir), shared.secret)
		}
	})
	require.NoError(t, makeErr)
	return shared
}

// makeDist runs `make dist` on a copy of the sources without a git checkout, like an unpacked archive.
func makeDist(checkout, secret string, env ...string) error {
	if err := os.MkdirAll(checkout, 0o755); err != nil {
		return err
	}
	copying := exec.Command("sh", "-euc",
		`git ls-files -z --cached --others --exclude-standard | tar --null --files-from - --create | tar -x -C "$1"`, "sh", checkout)
	copying.Dir = repository
	if err := command(copying); err != nil {
		return err
	}
	dist := exec.Command("make", "dist", "VERSION=v1.0.0")
	dist.Dir = checkout
	dist.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1700000000", "SOURCE_COMMIT=0123456789abcdef0123456789abcdef01234567",
		"NODEGATE_SIGNING_KEY="+secret)
	dist.Env = append(dist.Env, env...)
	return command(dist)
}

// TestSameBytes: in another directory, in another time zone and with another umask, the release has the same bytes. So does a program
// built with an empty cache. SECURITY.md: release.
func TestSameBytes(t *testing.T) {
	r := releaseMade(t)
	again := filepath.Join(t.TempDir(), "a", "longer", "way", "to", "the", "sources")
	old := syscall.Umask(0o077)
	err := makeDist(again, r.secret, "TZ=Asia/Kolkata", "LC_ALL=C")
	syscall.Umask(old)
	require.NoError(t, err)
	first, second := sumsOf(t, r.dir), sumsOf(t, filepath.Join(again, "dist"))
	assert.True(t, len(first) >= 10, "a release of %d files: %v", len(first), first)
	for name := range second {
		assert.True(t, first[name] != "", "%s: made only the second time", name)
	}
	for name, sum := range first {
		assert.Equal(t, second[name], sum, "%s", name)
	}
	fresh := release{version: "v1.0.0", dir: t.TempDir()}
	build := fresh.build("amd64")
	build.Dir = again
	build.Env = append(build.Env, "GOCACHE="+filepath.Join(t.TempDir(), "cache"))
	require.NoError(t, command(build))
	assert.Equal(t, sumsOf(t, fresh.dir)["nodegate-linux-amd64"], first["nodegate-linux-amd64"],
		"built without a cache, the program has the checksum")
}

func sumsOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, f := range filesIn(t, dir) {
		text := require.ReadFile(t, filepath.Join(dir, f))
		all[f] = fmt.Sprintf("%x", sha256.Sum256(text))
	}
	return all
}

func filesIn(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// the returns the only file of the release that matches.
func (m made) the(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(m.dir, pattern))
	require.True(t, err == nil && len(found) == 1, "%s: found %v, %v; want one", pattern, found, err)
	return found[0]
}

// tree copies the Debian tree of the virtual machines.
func tree(t *testing.T) string {
	t.Helper()
	missing := vm.Missing()
	hosttest.Need(t, len(missing) == 0, "a Debian tree: "+strings.Join(missing, ", "))
	root, err := filepath.Abs(repository)
	require.NoError(t, err)
	base, err := vm.DefaultCache(root).Base(t.Context())
	require.NoError(t, err)
	copied := filepath.Join(t.TempDir(), "tree")
	say(t, "cp", "-a", base.Tree, copied)
	write(t, copied+"/etc/systemd/system/kubelet.service", "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n")
	say(t, "systemctl", "--root", copied, "enable", "kubelet.service")
	return copied
}

// say runs a program that must succeed, and returns its output.
func say(t *testing.T, name string, args ...string) string {
	t.Helper()
	code, out := try(t, name, args...)
	require.True(t, code == 0, "%s %s: exit status %d\n%s", name, strings.Join(args, " "), code, out)
	return out
}

// try runs a program, and returns its exit status and its combined output.
func try(t *testing.T, name string, args ...string) (int, string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = append(os.Environ(), "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C",
		"DEBIAN_FRONTEND=noninteractive")
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	require.True(t, err == nil || cmd.ProcessState != nil, "running %s: %v", name, err)
	return cmd.ProcessState.ExitCode(), string(out)
}

// in runs a program inside a tree, with a /proc that is removed afterwards.
func in(t *testing.T, root string, args ...string) (int, string) {
	t.Helper()
	const script = `mount -t proc proc "$1/proc"; exec chroot "$@"`
	return try(t, "unshare", append([]string{"--mount", "sh", "-euc", script, "sh", root}, args...)...)
}

// sayIn is like in for a program that must succeed.
func sayIn(t *testing.T, root string, args ...string) string {
	t.Helper()
	code, out := in(t, root, args...)
	require.True(t, code == 0, "%s: exit status %d\n%s", strings.Join(args, " "), code, out)
	return out
}

// picture lists every path of a tree, except the package manager's own files: type, mode, owner, content.
func picture(t *testing.T, root string) []string {
	t.Helper()
	var lines []string
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(p, root)
		if slices.Contains([]string{"/var/lib/dpkg", "/var/lib/apt", "/var/lib/rpm", "/var/log", "/var/cache", "/tmp", "/root"}, name) {
			return filepath.SkipDir
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		line := name + " " + info.Mode().String()
		switch {
		case info.Mode().IsRegular():
			text, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %x", sha256.Sum256(text))
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(p)
			if err != nil {
				return err
			}
			line += " -> " + to
		}
		lines = append(lines, line)
		return nil
	})
	require.NoError(t, err)
	return lines
}
