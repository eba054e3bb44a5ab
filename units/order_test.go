package units_test

import (
	"os"
	"strings"
	"testing"

	"nodegate/units"
)

// TestDropInLastAndFirst: what kubelet's start depends on is written last and
// removed first, so that it never calls a binary that does not exist.
func TestDropInLastAndFirst(t *testing.T) {
	tree := open(t, t.TempDir())
	installed, err := units.Install(tree, files(t, policyOne, "one"), false)
	must(t, err)
	removed, err := units.Uninstall(tree, false)
	must(t, err)
	last, first := installed[len(installed)-1].Path, removed[0].Path
	if !strings.HasSuffix(last, "/10-nodegate.conf") || first != last {
		t.Errorf("installed last: %s; removed first: %s", last, first)
	}
	if installed[0].Path != units.Binary || removed[len(removed)-1].Path != units.Binary {
		t.Errorf("installed first: %s; removed last: %s", installed[0].Path, removed[len(removed)-1].Path)
	}
}

// TestSomebodyChangedAMode: a changed mode is a change, as changed content is.
func TestSomebodyChangedAMode(t *testing.T) {
	root := t.TempDir()
	tree := open(t, root)
	_, err := units.Install(tree, files(t, policyOne, "one"), false)
	must(t, err)
	must(t, os.Chmod(root+units.Binary, 0o700))
	if _, err := units.Uninstall(tree, false); err == nil || !strings.Contains(err.Error(), root+units.Binary+": somebody has changed it") {
		t.Errorf("a changed mode: %v", err)
	}
}
