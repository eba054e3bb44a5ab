package main

import (
	"testing"

	"nodegate/internal/require"
)

// TestCount counts comments only, and no line that names its reason.
func TestCount(t *testing.T) {
	patterns, err := parse("# a comment\n1\tcode\t\\bsomebody\\b\tthe operator\n0\tdocs\tanew\tagain")
	require.NoError(t, err)
	count(patterns, "a.go", "// Somebody wrote it.\n\tx := \"somebody\"\n\t// somebody else, words: a quotation\n//go:generate somebody\n")
	count(patterns, "a.md", "made again\nsomebody\n")
	if report(patterns) || len(patterns[0].found) != 1 {
		t.Errorf("%q", patterns[0].found)
	}
	count(patterns, "b.go", "// and somebody else\n")
	if !report(patterns) {
		t.Error("two lines pass where one may match")
	}
	count(patterns[1:], "a.md", "made anew\n")
	if len(patterns[1].found) != 1 {
		t.Errorf("%q", patterns[1].found)
	}
}

// TestList fails if words.txt has a row that cannot be read.
func TestList(t *testing.T) {
	if patterns, err := parse(list); err != nil || len(patterns) == 0 {
		t.Errorf("%d patterns, %v", len(patterns), err)
	}
}
