package program

import (
	"strings"
	"testing"

	"nodegate/internal/assert"
)

// TestEnvironment: programs whose output is parsed print English, whatever the locale of nodegate's caller.
func TestEnvironment(t *testing.T) {
	for _, name := range []string{"LANG", "LC_MESSAGES", "LC_NUMERIC"} {
		t.Setenv(name, "de_DE.UTF-8")
	}
	t.Setenv("LANGUAGE", "de")
	out, err := Run(t.Context(), "sh", "-c", `echo "$LC_ALL$LANG$LANGUAGE$LC_MESSAGES$LC_NUMERIC"`)
	assert.True(t, err == nil && strings.TrimSpace(string(out)) == "C", "%q, %v", out, err)
}
