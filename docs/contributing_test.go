package docs_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// TestWalks: every step of the walks in CONTRIBUTING.md names an existing file and a function in it.
func TestWalks(t *testing.T) {
	text := require.ReadFile(t, "../CONTRIBUTING.md")
	steps := regexp.MustCompile("(?m)^[1-5]\\. `([a-z/_]+\\.go)` `(\\w+)`: ").FindAllSubmatch(text, -1)
	assert.Equal(t, len(steps), 10)
	for _, s := range steps {
		code, err := os.ReadFile("../" + string(s[1]))
		if err != nil {
			t.Error(err)
			continue
		}
		if !regexp.MustCompile(`(?m)^func (\(\w* ?\*?\w+\) )?` + string(s[2]) + `\(`).Match(code) {
			t.Errorf("%s has no function %s", s[1], s[2])
		}
	}
}

// TestPromises: tests name every promise of SECURITY.md, and no other.
func TestPromises(t *testing.T) {
	text := require.ReadFile(t, "../SECURITY.md")
	held := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^- \*\*([a-z]+)\*\*: `).FindAllSubmatch(text, -1) {
		held[string(m[1])] = false
	}
	assert.True(t, len(held) >= 15, "%d promises", len(held))
	label := regexp.MustCompile(`(?m)^(?://|#) .*?SECURITY\.md: ([a-z]+(?:, [a-z]+)*)\.$`)
	for _, path := range testFiles(t) {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, m := range label.FindAllSubmatch(text, -1) {
			for name := range strings.SplitSeq(string(m[1]), ", ") {
				_, is := held[name]
				assert.True(t, is, "%s names %s, which SECURITY.md does not promise", path, name)
				held[name] = true
			}
		}
	}
	for name, is := range held {
		assert.True(t, is, "SECURITY.md promises %s, and no test names it: write `SECURITY.md: %s.` above the test", name, name)
	}
}
