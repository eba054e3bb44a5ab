package report

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// TestFold: no line is wider than the terminal, except for a single word that is too long; no word is lost; a line that fits is unchanged.
func TestFold(t *testing.T) {
	const text = "" +
		"\x1b[31mfail   \x1b[0m module.br_netfilter   want loaded, got not loaded, and some more\n" +
		"        why     Without it, the reply of a Service bypasses conntrack.\n" +
		"        see     https://example.com/a/long/address/that/must/stay/whole/to/be/copied\n" +
		"short\n" +
		"nodegate: fail  (stage boot, 1 fail, 2 because of these, 13 pass)\n"
	const want = "" +
		"\x1b[31mfail   \x1b[0m module.br_netfilter   want\n" +
		"        loaded, got not loaded, and some\n" +
		"        more\n" +
		"        why     Without it, the reply of\n" +
		"                a Service bypasses\n" +
		"                conntrack.\n" +
		"        see     https://example.com/a/long/address/that/must/stay/whole/to/be/copied\n" +
		"short\n" +
		"nodegate: fail  (stage boot, 1 fail, 2\n" +
		"                because of these, 13\n" +
		"                pass)\n"
	got := fold(text, 40)
	assert.Diff(t, got, want)
	assert.Equal(t, fold(text, 200), text, "a wide terminal changes the text")
	for columns := 1; columns < 100; columns++ {
		d := cmp.Diff(strings.Fields(text), strings.Fields(fold(text, columns)))
		require.True(t, d == "", "%d columns: %s", columns, d)
	}
}
