package config

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"nodegate/internal/require"
)

// The sentences of the checks and of the readers below them keep all their words, whatever stands in a private file.
func TestOwnWords(t *testing.T) {
	want := map[string]bool{}
	for _, root := range []string{"../../../checks", ".."} {
		require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "test.go") || strings.HasSuffix(filepath.Dir(path), "test") {
				return err
			}
			source, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			ast.Inspect(source, func(n ast.Node) bool {
				if literal, is := n.(*ast.BasicLit); is && literal.Kind == token.STRING {
					text, _ := strconv.Unquote(literal.Value)
					for _, run := range runs(text) {
						if strings.ContainsAny(text, " /") && strings.IndexFunc(run, unicode.IsDigit) < 0 && !isCamelWord(run) {
							want[run] = true
						}
					}
				}
				return true
			})
			return nil
		}))
	}
	if os.Getenv("UPDATE") != "" {
		require.NoError(t, os.WriteFile("own_words.txt", []byte(wrapped(slices.Sorted(maps.Keys(want)))), 0o644))
		return
	}
	for word := range want {
		require.True(t, knownOwnWords()[word], "a sentence has the word %q: UPDATE=1 go test ./internal/host/config -run TestOwnWords", word)
	}
	require.True(t, len(want) == len(knownOwnWords()), "words that no sentence has: UPDATE=1 go test ./internal/host/config -run TestOwnWords")
}

func wrapped(words []string) string {
	var out strings.Builder
	width := 0
	for _, word := range words {
		if width += len(word) + 1; width > 140 {
			out.WriteByte('\n')
			width = len(word) + 1
		} else if out.Len() > 0 {
			out.WriteByte(' ')
		}
		out.WriteString(word)
	}
	return out.String() + "\n"
}
