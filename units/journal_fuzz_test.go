package units

import (
	"os"
	"path/filepath"
	"testing"

	"nodegate/internal/host/tree"
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
			if err := os.MkdirAll(d, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		kept := filepath.Join(outside, "kept")
		for file, content := range map[string][]byte{name: text, kept: []byte("kept"), filepath.Join(root, "etc/a"): nil} {
			if err := os.WriteFile(file, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		tr, err := tree.Open(root)
		if err != nil {
			t.Fatal(err)
		}
		defer tr.Close()
		_, _ = Uninstall(tr, true)
		if got, err := os.ReadFile(kept); err != nil || string(got) != "kept" {
			t.Errorf("the file outside the root: %q, %v", got, err)
		}
	})
}
