package docs_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"nodegate/internal/require"
)

// TestWalks: every step of the walks in CONTRIBUTING.md names an existing file and a
// function in it.
func TestWalks(t *testing.T) {
	text, err := os.ReadFile("../CONTRIBUTING.md")
	require.NoError(t, err)
	steps := regexp.MustCompile("(?m)^[1-5]\\. `([a-z/_]+\\.go)` `(\\w+)`: ").FindAllSubmatch(text, -1)
	if len(steps) != 10 {
		t.Errorf("%d steps, want two walks of five", len(steps))
	}
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

// TestPromises: each promise of SECURITY.md names a test that exists.
func TestPromises(t *testing.T) {
	text, err := os.ReadFile("../SECURITY.md")
	require.NoError(t, err)
	_, table, _ := strings.Cut(string(text), "| promise | shown by |\n|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	tests := testNames(t)
	rows := 0
	for row := range strings.Lines(table) {
		rows++
		cells := strings.Split(row, " | ")
		names := regexp.MustCompile(`Test\w+|\w+\.txtar|\w+_test\.go|the fuzz targets`).FindAllString(cells[len(cells)-1], -1)
		if len(names) == 0 {
			t.Errorf("no test: %s", row)
		}
		for _, name := range names {
			if name != "the fuzz targets" && !slices.Contains(tests, name) {
				t.Errorf("SECURITY.md names %s, which does not exist: %s", name, row)
			}
		}
	}
	if rows < 20 {
		t.Errorf("%d rows", rows)
	}
}
