package file_test

import (
	"os"
	"path/filepath"
	"testing"

	"nodegate/internal/host/file"
	"nodegate/internal/require"
)

func TestTail(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	for content, want := range map[string]string{"": "", "abc": "abc", "abcdefgh": "defgh"} {
		require.NoError(t, os.WriteFile(name, []byte(content), 0o600))
		f, err := file.Open(name)
		require.NoError(t, err)
		if got, err := file.Tail(f, 5); err != nil || string(got) != want {
			t.Errorf("the end of %q is %q (%v), want %q", content, got, err, want)
		}
	}
}
