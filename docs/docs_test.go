package docs_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"nodegate/checks/catalog"
	"nodegate/internal/require"
)

// TestTroubleshooting: the checks that the rows of docs/troubleshooting.md name exist.
func TestTroubleshooting(t *testing.T) {
	text, err := os.ReadFile("troubleshooting.md")
	require.NoError(t, err)
	all, err := catalog.Explain()
	require.NoError(t, err)
	known := map[string]bool{}
	for _, e := range all {
		known[e.Name] = true
	}
	rows := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, " | ")
		if len(cells) != 4 {
			continue
		}
		rows++
		for _, name := range regexp.MustCompile("`([a-z-]+\\.[a-z_.-]+)`").FindAllStringSubmatch(cells[2], -1) {
			if !known[name[1]] && name[1] != "10-nodegate.conf" {
				t.Errorf("unknown check %s", name[1])
			}
		}
	}
	if rows < 20 {
		t.Errorf("%d rows", rows)
	}
}
