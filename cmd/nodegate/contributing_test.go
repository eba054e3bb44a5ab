package main

import (
	"os"
	"regexp"
	"testing"

	"nodegate/internal/require"
)

// TestWalks: every step of the walks in CONTRIBUTING.md names an existing file and a
// function in it.
func TestWalks(t *testing.T) {
	text, err := os.ReadFile("../../CONTRIBUTING.md")
	require.NoError(t, err)
	steps := regexp.MustCompile("(?m)^[1-5]\\. `([a-z/_]+\\.go)` `(\\w+)`: ").FindAllSubmatch(text, -1)
	if len(steps) != 15 {
		t.Errorf("%d steps, want three walks of five", len(steps))
	}
	for _, s := range steps {
		code, err := os.ReadFile("../../" + string(s[1]))
		if err != nil {
			t.Error(err)
			continue
		}
		if !regexp.MustCompile(`(?m)^func (\(\w* ?\*?\w+\) )?` + string(s[2]) + `\(`).Match(code) {
			t.Errorf("%s has no function %s", s[1], s[2])
		}
	}
}
