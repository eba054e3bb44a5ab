package units_test

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/require"
	"nodegate/policy"
	"nodegate/units"
)

// TestMain keeps the trees in memory if possible, because every file is flushed.
func TestMain(m *testing.M) {
	const memory = "/dev/shm"
	if info, err := os.Stat(memory); err == nil && info.IsDir() && os.Getenv("TMPDIR") == "" {
		_ = os.Setenv("TMPDIR", memory)
	}
	os.Exit(m.Run())
}

// policyIn returns the policy below the root, read as every command reads it.
func policyIn(t *testing.T, root string) string {
	h, err := host.Open(root)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer h.Close()
	found, err := h.ReadFiles(units.PolicyDir, policy.IsPolicyFile)
	assert.True(t, err == nil || errors.Is(err, fs.ErrNotExist), "%v", err)
	var b strings.Builder
	for _, f := range found {
		b.WriteString(path.Base(f.Name) + "\n" + string(f.Text) + "\n")
	}
	return b.String()
}

// policyOf returns the policy among the files, in the same format.
func policyOf(files []units.File) string {
	var b strings.Builder
	for _, f := range files {
		if path.Dir(f.Path) == units.PolicyDir {
			b.WriteString(path.Base(f.Path) + "\n" + string(f.Content) + "\n")
		}
	}
	return b.String()
}

// TestReadersDuringUpgrades: a program that reads the policy during an upgrade reads the old one or
// the new one. LONG=1 makes 1,000 upgrades. SECURITY.md: atomic.
func TestReadersDuringUpgrades(t *testing.T) {
	upgrades, readers := 20, 4
	if os.Getenv("LONG") != "" {
		upgrades = 1000
	}
	root := t.TempDir()
	one, two := files(t, policyOne, "one"), files(t, policyTwo, "two")
	tree := open(t, root)
	require.NoError(t, reinstall(tree, one))
	var reads, changes atomic.Int64
	var done atomic.Bool
	var wg sync.WaitGroup
	for range readers {
		wg.Go(func() {
			for last := ""; !done.Load(); reads.Add(1) {
				got := policyIn(t, root)
				if got != policyOf(one) && got != policyOf(two) {
					t.Errorf("neither the old policy nor the new one:\n%s", got)
					return
				}
				if got != last {
					changes.Add(1)
				}
				last = got
			}
		})
	}
	for i := range upgrades {
		next := two
		if i%2 == 1 {
			next = one
		}
		if err := reinstall(tree, next); err != nil {
			t.Error(err)
			break
		}
	}
	done.Store(true)
	wg.Wait()
	assert.True(t, changes.Load() > int64(readers), "no reader saw an upgrade: the test proves nothing")
	t.Logf("%d reads during %d upgrades, none wrong; the policy had changed %d times", reads.Load(), upgrades, changes.Load())
}

// TestForeignPolicyFile: files of other programs in the policy directory are kept.
func TestForeignPolicyFile(t *testing.T) {
	root := t.TempDir()
	tree := open(t, root)
	require.NoError(t, reinstall(tree, files(t, policyOne, "one")))
	mine := root + units.PolicyDir + "/50-mine.hcl"
	require.NoError(t, os.WriteFile(mine, []byte("# mine"), 0o640))
	require.NoError(t, os.Symlink("/nowhere", root+units.PolicyDir+"/README"))
	require.NoError(t, reinstall(tree, files(t, policyTwo, "two")))
	text, err := os.ReadFile(mine)
	assert.True(t, err == nil && string(text) == "# mine", "a file of another program: %q, %v", text, err)
	if to, err := os.Readlink(root + units.PolicyDir + "/README"); err != nil || to != "/nowhere" {
		t.Errorf("a link of another program: %q, %v", to, err)
	}
	// The policy directory cannot be copied if it contains a directory; install still works.
	require.NoError(t, os.Mkdir(root+units.PolicyDir+"/old", 0o755))
	require.NoError(t, reinstall(tree, files(t, policyOne, "one")))
	got, want := policyIn(t, root), "50-mine.hcl\n# mine\n"+policyOf(files(t, policyOne, "one"))
	assert.Equal(t, got, want, "the policy")
}

// TestStagedNames: no program reads the files that a killed run left. procps, for example, applies hidden files too.
func TestStagedNames(t *testing.T) {
	root := node(t)
	tree := open(t, root)
	k := &killer{Tree: tree, left: 30}
	for k.left > 0 && !k.dead {
		_, err := units.Install(k, files(t, policyOne, "one"), false)
		require.True(t, err != nil, "not killed: choose an earlier write")
	}
	left := strings.Count(manifest(t, root), ".nodegate-new")
	require.True(t, left != 0, "no staged file was left: the test proves nothing")
	for line := range strings.SplitSeq(manifest(t, root), "\n") {
		name := path.Base(strings.TrimSuffix(strings.Fields(line)[0], "/"))
		assert.True(t, !strings.Contains(name, "nodegate-new") || strings.HasSuffix(name, ".nodegate-new"),
			"%s could be taken for a file of its kind", name)
	}
	require.NoError(t, reinstall(tree, files(t, policyOne, "one")))
	assert.True(t, !strings.Contains(manifest(t, root), ".nodegate-new"), "the next install left:\n%s", manifest(t, root))
}
