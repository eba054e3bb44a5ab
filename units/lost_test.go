package units_test

import (
	"os"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/require"
	"nodegate/policy"
	"nodegate/units"
)

// TestLostJournal: without its journal, uninstall reports the loss, not that nothing is installed. After another install,
// uninstall removes everything.
func TestLostJournal(t *testing.T) {
	for _, packaged := range []bool{false, true} {
		root := inMemory(t)
		tree := open(t, root)
		for _, d := range []string{"/etc/systemd/system/a.d", "/etc/modules-load.d", "/etc/sysctl.d", "/var/lib", "/usr/local/bin"} {
			require.NoError(t, os.MkdirAll(root+d, 0o755))
		}
		// Links that lead elsewhere and plain files are not directories of nodegate.
		require.NoError(t, os.Symlink("/../../outside", root+"/etc/systemd/system/b.d"))
		require.NoError(t, os.WriteFile(root+"/etc/systemd/system/c.d", nil, 0o644))
		if packaged {
			pack(t, root, "one")
		}
		before := filesAndLinks(t, root)
		program, err := units.FindProgram(tree, []byte("one"))
		require.NoError(t, err)
		wanted := filesOf(t, program.AllowingWritable(), policy.File{Name: "a.hcl", Text: []byte(policyOne)})
		_, err = units.Install(tree, wanted, false)
		require.NoError(t, err)
		require.NoError(t, os.RemoveAll(root+"/var/lib/nodegate"))
		for _, force := range []bool{false, true} {
			_, err = units.Uninstall(tree, force)
			if err == nil || !strings.Contains(err.Error(), root+"/etc/systemd/system/kubelet.service.d/10-nodegate.conf belongs to an "+
				"installation") ||
				!strings.Contains(err.Error(), "run `nodegate install` to create the journal again") {
				t.Errorf("uninstall without a journal: %v", err)
			}
		}
		changes, err := units.Install(tree, wanted, false)
		assert.True(t, err == nil && len(changes) == len(wanted)+1, "installed again: %v, %v", changes, err)
		_, err = units.Uninstall(tree, false)
		require.NoError(t, err)
		assert.Diff(t, filesAndLinks(t, root), before, "packaged %t: uninstalled after the journal was lost", packaged)
	}
}

// filesAndLinks returns a manifest without the directories: the journal recorded which of them install created.
func filesAndLinks(t *testing.T, root string) string {
	t.Helper()
	var kept []string
	for line := range strings.Lines(manifest(t, root)) {
		if words := strings.Fields(line); !strings.HasPrefix(words[1], "d") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

// TestIdenticalForeignFile: a file of another program stays after uninstall, even if it is identical to the file that install would write.
// Without a gate of nodegate, nothing proves that install wrote it.
func TestIdenticalForeignFile(t *testing.T) {
	root := node(t)
	tree := open(t, root)
	require.NoError(t, os.Remove(root+units.Binary))
	require.NoError(t, os.WriteFile(root+units.Binary, []byte("one"), 0o755))
	require.NoError(t, os.Chmod(root+units.Binary, 0o755))
	before := manifest(t, root)
	require.NoError(t, reinstall(tree, files(t, policyOne, "one")))
	_, err := units.Uninstall(tree, false)
	require.NoError(t, err)
	assert.Diff(t, manifest(t, root), before, "an identical file of another program")
}
