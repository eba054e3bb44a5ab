package conntrack

import (
	"slices"
	"strings"
	"testing"

	"nodegate/internal/assert"
)

func FuzzConntrackStat(f *testing.F) {
	f.Add("entries  found insert_failed drop early_drop\n00000010  00000000 0000000a 00000000 00000001\n0000000f  ffffffff 0000000a " +
		"00000000 00000001\n")
	f.Add("entries\n")
	f.Add("a b\n1\n")
	f.Add("a a\n1 2\n")
	f.Fuzz(func(t *testing.T, text string) {
		sums, err := parseConntrackStat(text)
		if err != nil {
			return
		}
		for name := range sums {
			assert.True(t, slices.Contains(strings.Fields(text), name), "%q is not a name in %q", name, text)
		}
		assert.True(t, len(sums) != 0, "no counters and no error: %q", text)
	})
}
