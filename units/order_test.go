package units_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/require"
	"nodegate/policy"
	"nodegate/units"
)

// TestDropInLastAndFirst: the drop-in that kubelet's start depends on is written last and removed
// first, so that it never calls a binary that does not exist. The journal is the first to be written and the last to be removed.
func TestDropInLastAndFirst(t *testing.T) {
	tree := open(t, t.TempDir())
	installed, err := units.Install(tree, files(t, policyOne, "one"), false)
	require.NoError(t, err)
	removed, err := units.Uninstall(tree, false)
	require.NoError(t, err)
	last, first := installed[len(installed)-1].Path, removed[0].Path
	assert.True(t, strings.HasSuffix(last, "/10-nodegate.conf") && first == last, "installed last: %s; removed first: %s", last, first)
	n := len(removed)
	if installed[1].Path != units.Binary || removed[n-2].Path != units.Binary || installed[0].Path != units.JournalFile || removed[n-1].Path != units.JournalFile {
		t.Errorf("installed first: %v; removed last: %v", installed[:2], removed[n-2:])
	}
}

// TestDropInNamesAProgram: an installation that moves to the package's program and to another unit may be killed at any write; no
// drop-in ever calls a missing program.
func TestDropInNamesAProgram(t *testing.T) {
	for kill, finished := 0, false; !finished; kill++ {
		root := node(t)
		tree := open(t, root)
		require.NoError(t, os.Remove(root+units.Binary))
		_, err := units.Install(tree, filesOf(t, units.Copied([]byte("one")), policy.File{Name: "a.hcl", Text: []byte(policyOne)}), false)
		require.NoError(t, err)
		pack(t, root, "two")
		program, err := units.FindProgram(tree, []byte("two"))
		require.NoError(t, err)
		k := &killer{Tree: tree, left: kill}
		moved := filesOf(t, program, policy.File{Name: "a.hcl", Text: []byte(policyTwo)})
		finished = reinstall(k, moved) == nil && k.left >= 0
		dropIns, err := filepath.Glob(root + "/etc/systemd/system/*.d/10-nodegate.conf")
		require.NoError(t, err)
		require.True(t, len(dropIns) != 0, "killed at write %d: no gate", kill)
		for _, name := range dropIns {
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			called := regexp.MustCompile(`exec (\S+) gate`).FindSubmatch(text)
			_, err = os.Stat(root + string(called[1]))
			assert.NoError(t, err, "killed at write %d, %s", kill, name)
		}
	}
}

// TestChangedMode: a changed mode counts as a change, as changed content does.
func TestChangedMode(t *testing.T) {
	root := t.TempDir()
	tree := open(t, root)
	_, err := units.Install(tree, files(t, policyOne, "one"), false)
	require.NoError(t, err)
	require.NoError(t, os.Chmod(root+units.Binary, 0o700))
	_, err = units.Uninstall(tree, false)
	assert.ErrorContains(t, err, root+units.Binary+" has changed since", "a changed mode")
}
