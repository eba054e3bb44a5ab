package units

import (
	"os"
	"path/filepath"
	"testing"

	"nodegate/internal/host/tree"
	"nodegate/internal/require"
)

// FuzzJournal: no journal makes uninstall panic or change a file outside the root.
func FuzzJournal(f *testing.F) {
	f.Add([]byte(`{"apiVersion": "nodegate/v1", "kind": "Journal", "dirs": ["/etc/x"], "entries": [{"path": "/etc/a", "before": {"type": "file",
		"sum": "00"}, "wrote": [{"type": "absent"}]}]}`))
	f.Add([]byte(`{"apiVersion": "nodegate/v1", "kind": "Journal", "dirs": ["/../outside"], "entries": [{"path": "/../outside/kept"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		root, outside := filepath.Join(dir, "root"), filepath.Join(dir, "outside")
		name := filepath.Join(root, JournalFile)
		for _, d := range []string{filepath.Dir(name), outside, filepath.Join(root, "etc")} {
			require.NoError(t, os.MkdirAll(d, 0o755))
		}
		kept := filepath.Join(outside, "kept")
		for file, content := range map[string][]byte{name: text, kept: []byte("kept"), filepath.Join(root, "etc/a"): nil} {
			require.NoError(t, os.WriteFile(file, content, 0o600))
		}
		tr, err := tree.Open(root)
		require.NoError(t, err)
		defer tr.Close()
		_, _ = Uninstall(tr, true)
		if got, err := os.ReadFile(kept); err != nil || string(got) != "kept" {
			t.Errorf("the file outside the root: %q, %v", got, err)
		}
	})
}
