package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// TestMistakes: each policy of testdata/mistakes.ar has one mistake, and lint reports its
// position. The first line of a policy has the expected result:
//
//	# EXIT LINE:COLUMN TEXT     exit status, position and message of lint
//	# install EXIT ...          the same for install into a tree with k3s
//
// SECURITY.md: terminal.
func TestMistakes(t *testing.T) {
	t.Parallel()
	archive, err := txtar.ParseFile("testdata/mistakes.ar")
	require.NoError(t, err)
	require.True(t, len(archive.Files) >= 60, "only %d mistakes", len(archive.Files))
	root := t.TempDir()
	unit := filepath.Join(root, "etc/systemd/system/k3s.service")
	require.NoError(t, errors.Join(os.MkdirAll(filepath.Dir(unit), 0o755), os.WriteFile(unit, []byte("[Service]\n"), 0o644)))
	for _, f := range archive.Files {
		t.Run(f.Name, func(t *testing.T) {
			first, _, _ := strings.Cut(strings.TrimPrefix(string(f.Data), "# "), "\n")
			args := []string{"lint", f.Name}
			if rest, ok := strings.CutPrefix(first, "install "); ok {
				first, args = rest, []string{"install", "--root", root, "--policy", f.Name}
			}
			words := strings.SplitN(first, " ", 3)
			cmd := exec.CommandContext(t.Context(), "nodegate", args...)
			cmd.Dir = t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(cmd.Dir, f.Name), f.Data, 0o644))
			out, err := cmd.CombinedOutput()
			var failed *exec.ExitError
			require.True(t, err == nil || errors.As(err, &failed), "%v", err)
			code, place := "0", f.Name+":"+words[1]+": "
			if failed != nil {
				code = "2"
			} else {
				place += "Warning: "
			}
			said := ""
			for line := range strings.Lines(string(out)) {
				if rest, ok := strings.CutPrefix(line, place); ok {
					said += rest
				}
			}
			assert.True(t, code == words[0] && strings.Contains(said, words[2]), "exit status %s, and at %s: %q\n%s", code, place, said, out)
			more := 0
			for line := range strings.Lines(string(out)) {
				if strings.HasPrefix(line, f.Name+":") && !strings.Contains(line, "without a reason") {
					more++
				}
			}
			assert.True(t, more <= 1, "more than one message:\n%s", out)
		})
	}
}
