package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// TestManualLint runs both renderers of manual pages with warnings enabled.
func TestManualLint(t *testing.T) {
	hosttest.NeedProgram(t, "mandoc")
	hosttest.NeedProgram(t, "man")
	there, err := filepath.Glob("man/*")
	require.True(t, err == nil && len(there) != 0, "no pages: %v", err)
	for _, file := range there {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		filled := filepath.Join(t.TempDir(), filepath.Base(file))
		text = []byte(strings.Replace(string(text), `"DATE" "nodegate VERSION"`, `"2026-01-31" "nodegate 1.0.0"`, 1))
		require.NoError(t, os.WriteFile(filled, text, 0o644))
		for _, args := range [][]string{{"mandoc", "-T", "lint", "-W", "warning"}, {"man", "--warnings", "-E", "UTF-8", "-Tutf8", "-Z", "-l"}} {
			var said strings.Builder
			cmd := exec.CommandContext(t.Context(), args[0], append(args[1:], filled)...)
			cmd.Env = append(os.Environ(), "MANWIDTH=80", "LC_ALL=C.UTF-8")
			cmd.Stderr = &said
			if args[0] == "mandoc" {
				cmd.Stdout = &said
			}
			if err := cmd.Run(); err != nil || said.Len() > 0 {
				t.Errorf("%s %s: %v\n%s", args[0], file, err, said.String())
			}
		}
	}
}
