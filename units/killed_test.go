package units_test

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nodegate/internal/assert"
	"nodegate/internal/host/tree"
	"nodegate/internal/require"
	"nodegate/units"
)

// TestKilledAnywhere kills install and uninstall before each of their writes and in the middle of
// each file, and lets the next run finish. SECURITY.md: atomic.
func TestKilledAnywhere(t *testing.T) {
	one, two := files(t, policyOne, "binary one"), files(t, policyTwo, "binary two")
	install := func(f []units.File) func(units.Tree) error {
		return func(tree units.Tree) error { _, err := units.Install(tree, f, false); return err }
	}
	uninstall := func(tree units.Tree) error { _, err := units.Uninstall(tree, false); return err }

	for _, c := range []struct {
		name          string
		setup, killed func(units.Tree) error
		becomes       string // the policy
	}{
		{"install", func(units.Tree) error { return nil }, install(one), policyOf(one)},
		{"upgrade", install(one), install(two), policyOf(two)},
		{"uninstall", install(one), uninstall, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			steps := 0
			for kill := 0; ; kill++ {
				finished := false
				for _, finish := range []string{"install", "uninstall", "install after one failure", "uninstall after one failure"} {
					root := node(t)
					tree := open(t, root)
					before := manifest(t, root)
					require.NoError(t, c.setup(tree))
					k := &killer{Tree: tree, left: kill, once: strings.HasSuffix(finish, "after one failure")}
					was := policyIn(t, root)
					finished = c.killed(k) == nil && k.left >= 0
					if now := policyIn(t, root); now != was && now != c.becomes {
						t.Fatalf("killed at write %d: the policy is neither the old one nor the new one, but\n%s", kill, now)
					}
					if !strings.HasPrefix(finish, "uninstall") {
						require.NoError(t, reinstall(tree, two), "killed at write %d", kill)
						want := freshly(t, two)
						d := cmp.Diff(want, withoutTimes(manifest(t, root)))
						require.True(t, d == "", "killed at write %d, install finished wrong:\n%s", kill, d)
					}
					require.NoError(t, uninstall(tree))
					d := cmp.Diff(before, manifest(t, root))
					require.True(t, d == "", "killed at write %d, then %s: uninstall left a difference:\n%s", kill, finish, d)
				}
				if steps = kill; finished {
					break
				}
			}
			assert.True(t, steps >= 10, "killed at only %d writes: the test does not see the writes", steps)
		})
	}
}

func reinstall(tree units.Tree, f []units.File) error {
	_, err := units.Install(tree, f, false)
	return err
}

// TestDirectoryStays: a directory that cannot be removed stays in the journal, and the next run removes it.
func TestDirectoryStays(t *testing.T) {
	one, two := files(t, policyOne, "binary one"), files(t, policyTwo, "binary two")
	for _, failing := range []string{"install", "upgrade", "uninstall"} {
		root := node(t)
		tree := open(t, root)
		before := manifest(t, root)
		if failing != "install" {
			require.NoError(t, reinstall(tree, one))
		}
		var err error
		stuck := &keeper{Tree: tree}
		switch failing {
		case "install": // the last file cannot be written, and the directories of the others cannot be removed again
			stuck.dir, stuck.unwritten = "/etc/nodegate", units.GateFile("kubelet.service")
			_, err = units.Install(stuck, one, false)
		case "upgrade":
			stuck.dir, stuck.unwritten = "/etc/systemd/system/k3s.service.d", units.GateFile("k3s.service")
			_, err = units.Install(stuck, two, false)
		default:
			stuck.dir = "/etc/nodegate"
			_, err = units.Uninstall(stuck, false)
		}
		assert.True(t, errors.Is(err, errDead), "%s: %v", failing, err)
		_, err = units.Uninstall(tree, false)
		require.NoError(t, err)
		assert.Diff(t, manifest(t, root), before, "%s failed; the next uninstall left a difference", failing)
	}
}

// keeper is a tree in which one directory cannot be removed, and one file cannot be written.
type keeper struct {
	units.Tree
	dir, unwritten string
}

func (k *keeper) Remove(p string) error {
	if p == k.dir {
		return errDead
	}
	return k.Tree.Remove(p)
}

func (k *keeper) StageFile(p string, content []byte, mode fs.FileMode) error {
	if p == k.unwritten {
		return errDead
	}
	return k.Tree.StageFile(p, content, mode)
}

// TestKilledAtTheLock: if install dies after it has created only the lock, the next uninstall leaves nothing.
func TestKilledAtTheLock(t *testing.T) {
	root := node(t)
	before := manifest(t, root)
	require.NoError(t, os.WriteFile(root+"/var/lib/.nodegate.lock", nil, 0o600))
	_, err := units.Uninstall(open(t, root), false)
	require.NoError(t, err)
	assert.Diff(t, manifest(t, root), before, "left")
}

// freshly returns the manifest of a fresh installation, without the history in the journal.
func freshly(t *testing.T, f []units.File) string {
	t.Helper()
	root := node(t)
	require.NoError(t, reinstall(open(t, root), f))
	return withoutTimes(manifest(t, root))
}

func withoutTimes(manifest string) string {
	var kept []string
	for l := range strings.SplitSeq(manifest, "\n") {
		if strings.Contains(l, "/var/lib/nodegate/") {
			continue // the order of the journal's entries is its history
		}
		// A directory that only an earlier policy needed may stay until uninstall.
		if strings.HasPrefix(l, "/etc/systemd/system/kubelet.service.d/ d") {
			continue
		}
		if words := strings.Fields(l); len(words) > 4 {
			l = strings.Join(words[:4], " ")
		}
		kept = append(kept, l)
	}
	return strings.Join(kept, "\n")
}

// killer is a tree whose process dies before the write with number left. That write and all later
// ones do not happen, except that a file may be half staged.
type killer struct {
	units.Tree
	left int
	dead bool
	once bool // only that write fails, and the process goes on
}

var errDead = errors.New("killed")

func (k *killer) die() bool {
	k.dead = k.dead && !k.once || k.left == 0
	k.left--
	return k.dead
}

func (k *killer) Mkdir(p string, mode fs.FileMode) error {
	if k.die() {
		return errDead
	}
	return k.Tree.Mkdir(p, mode)
}

func (k *killer) StageFile(p string, content []byte, mode fs.FileMode) error {
	if first := !k.dead; k.die() {
		if first {
			_ = k.Tree.StageFile(p, content[:len(content)/2], 0o600)
		}
		return errDead
	}
	return k.Tree.StageFile(p, content, mode)
}

func (k *killer) StageLink(p, target string) error {
	if k.die() {
		return errDead
	}
	return k.Tree.StageLink(p, target)
}

func (k *killer) Own(p string, n tree.Entry) error {
	if k.die() {
		return errDead
	}
	return k.Tree.Own(p, n)
}

func (k *killer) Commit(p string) error {
	if k.die() {
		return errDead
	}
	return k.Tree.Commit(p)
}

func (k *killer) Unstage(p string) error {
	if k.die() {
		return errDead
	}
	return k.Tree.Unstage(p)
}

func (k *killer) Remove(p string) error {
	if k.die() {
		return errDead
	}
	return k.Tree.Remove(p)
}

func (k *killer) StageDir(p string) (string, error) {
	if k.die() {
		return "", errDead
	}
	return k.Tree.StageDir(p)
}

func (k *killer) CommitDir(p string, names []string) error {
	if k.die() {
		return errDead
	}
	return k.Tree.CommitDir(p, names)
}

func (k *killer) UnstageDir(p string) error {
	if k.die() {
		return errDead
	}
	return k.Tree.UnstageDir(p)
}
