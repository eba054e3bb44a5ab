package docs_test

import (
	"regexp"
	"strings"
	"testing"

	"nodegate/checks/catalog"
	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// TestTroubleshooting: the checks that the rows of docs/troubleshooting.md name exist.
func TestTroubleshooting(t *testing.T) {
	text := require.ReadFile(t, "troubleshooting.md")
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
			assert.True(t, known[name[1]] || name[1] == "10-nodegate.conf", "unknown check %s", name[1])
		}
	}
	assert.True(t, rows >= 20, "%d rows", rows)
}
