//go:build torture

package torture

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// TestTargets makes each path that install, upgrade and uninstall change immutable, append-only, a mount point, or read-only. The
// run must fail before its first write, and succeed once the path is as it was.
func TestTargets(t *testing.T) {
	t.Parallel()
	hosttest.NeedRoot(t)
	hosttest.NeedProgram(t, "chattr")
	dir, err := os.MkdirTemp("", "nodegate-torture") // a file system in memory has no attributes before Linux 6.6
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	b := newBench(t, dir)
	var number atomic.Int64
	for _, p := range phases {
		var points [][2]string
		for _, target := range b.targets(t, p) {
			for _, how := range []string{"immutable", "append-only", "a mount point", "read-only", "in an immutable directory",
				"in an append-only directory"} {
				points = append(points, [2]string{target, how})
			}
		}
		var s survey
		forEachPoint(samplePoints(t, len(points), 10), 4, func(i int) {
			target, how := points[i][0], points[i][1]
			root := fmt.Sprintf("%s/%s-%d", dir, p.name, number.Add(1))
			copyTree(t, dir+"/"+p.start, root)
			defer os.RemoveAll(root)
			s.runPoint(t, fmt.Sprintf("%s, %s is %s", p.name, target, how), func() error {
				return b.lockTarget(p, root, target, how)
			})
		})
		s.printCounts(t, p.name+": a target that root cannot replace")
	}
}

// targets returns the files of the starting tree that a phase replaces or removes.
func (b *bench) targets(t *testing.T, p phase) []string {
	args := b.runArgs(b.dir+"/"+p.start, p.verb, p.which)
	var all []string
	if p.verb == "install" {
		out, err := exec.Command(args[0], append(args[1:], "--dry-run")...).CombinedOutput()
		require.NoError(t, err)
		for line := range strings.Lines(string(out)) {
			if rest, is := strings.CutPrefix(strings.TrimSpace(line), "replace"); is {
				all = append(all, strings.TrimPrefix(strings.TrimSpace(rest), b.dir+"/"+p.start))
			}
		}
	} else {
		for name := range strings.Lines(b.manifest["old"]) {
			name, rest, _ := strings.Cut(name, " ")
			if !strings.Contains(b.manifest["bare"], name+" "+rest) && strings.HasPrefix(rest, "-") {
				all = append(all, name)
			}
		}
	}
	require.True(t, len(all) >= 2, "%s changes only %q", p.name, all)
	return all
}

// lockTarget runs a phase on a tree with one locked target, and then without the lock.
func (b *bench) lockTarget(p phase, root, target, how string) error {
	full := root + target
	flag, on := "", full
	switch how {
	case "immutable":
		flag = "i"
	case "append-only":
		flag = "a"
	case "in an immutable directory":
		flag, on = "i", path.Dir(full)
	case "in an append-only directory":
		flag, on = "a", path.Dir(full)
	}
	before, err := describeTree(root)
	if err != nil {
		return err
	}
	attack := func() error {
		args := b.runArgs(root, p.verb, p.which)
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		var failed *exec.ExitError
		switch {
		case !errors.As(err, &failed) || failed.ExitCode() < 0:
			return fmt.Errorf("it ended with %w: %s", err, out)
		case !strings.Contains(string(out), full) && !strings.Contains(string(out), path.Dir(full)):
			return fmt.Errorf("the error does not name the target: %s", out)
		}
		return nil
	}
	if flag != "" {
		if err := runCommand("chattr", "+"+flag, on); err != nil {
			return err
		}
		err = errors.Join(attack(), runCommand("chattr", "-"+flag, on))
	} else {
		err = inOwnMounts(func() error {
			on := full
			if how == "read-only" {
				on = path.Dir(full)
			}
			if err := unix.Mount(on, on, "", unix.MS_BIND, ""); err != nil {
				return err
			}
			if how == "read-only" {
				if err := unix.Mount("", on, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
					return err
				}
			}
			return attack()
		})
	}
	if err != nil {
		return err
	}
	after, err := describeTree(root)
	if err != nil {
		return err
	}
	if after != before {
		return fmt.Errorf("the run changed the tree, from\n%s\nto\n%s", before, after)
	}
	return b.judgeTree(p, root, true)
}
