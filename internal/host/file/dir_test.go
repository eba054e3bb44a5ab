package file

import (
	"strings"
	"testing"

	"nodegate/internal/assert"
)

// TestTooMuch: many files that are each below the limit are refused because of their total size, before all of them are in memory.
func TestTooMuch(t *testing.T) {
	read := 0
	names := func(string) ([]string, error) { return strings.Fields(strings.Repeat("a ", 60)), nil }
	_, err := ReadDir("/d", nil, names, func(string) bool { return true }, func(string) ([]byte, error) {
		read++
		return make([]byte, maxTogether/2), nil
	})
	assert.True(t, err != nil && strings.Contains(err.Error(), "the files of /d have more than") && read == 3,
		"%v after %d files", err, read)
}
