package main

import (
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// TestCount counts comments only, and no line that names its reason.
func TestCount(t *testing.T) {
	patterns, err := parse("# a comment\n1\tcode\t\\bsomebody\\b\tthe operator\n0\tdocs\tanew\tagain")
	require.NoError(t, err)
	count(patterns, "a.go", "// Somebody wrote it.\n\tx := \"somebody\"\n\t// somebody else, words: a quotation\n//go:generate somebody\n")
	count(patterns, "a.md", "made again\nsomebody\n")
	assert.True(t, !report(patterns) && len(patterns[0].found) == 1, "%q", patterns[0].found)
	count(patterns, "b.go", "// and somebody else\n")
	assert.True(t, report(patterns), "two lines pass where one may match")
	count(patterns[1:], "a.md", "made anew\n")
	assert.True(t, len(patterns[1].found) == 1, "%q", patterns[1].found)
}

// TestList fails if words.txt has a row that cannot be read.
func TestList(t *testing.T) {
	patterns, err := parse(list)
	assert.True(t, err == nil && len(patterns) != 0, "%d patterns, %v", len(patterns), err)
}
