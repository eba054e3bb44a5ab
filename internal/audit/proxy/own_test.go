package proxy

import (
	"encoding/json"
	"strings"
	"testing"
	"unsafe"

	"nodegate/internal/assert"
	"nodegate/internal/require"
	"nodegate/internal/ruleset"
)

// TestOwn checks that a report with copied strings is equal to the original and shares no memory
// with the rules.
func TestOwn(t *testing.T) {
	for _, name := range []string{"iptables-save.txt", "nft-list-ruleset.json"} {
		set, err := ruleset.Parse(name, strings.NewReader(readFile(t, name)))
		require.NoError(t, err)
		rep := Judge([]*ruleset.Set{set}, Options{})
		rep.Findings = append(rep.Findings, Finding{Name: "n", Service: "s", Means: "m", Message: "x"})
		before, err := json.Marshal(rep)
		require.NoError(t, err)
		if len(rep.Services) == 0 || len(rep.Services[0].Endpoints) == 0 {
			t.Fatalf("%s: %d Services", name, len(rep.Services))
		}
		was := unsafe.StringData(rep.Services[0].Endpoints[0].Address)
		rep.CloneStrings()
		after, err := json.Marshal(rep)
		require.NoError(t, err)
		assert.Diff(t, string(after), string(before), "%s", name)
		if unsafe.StringData(rep.Services[0].Endpoints[0].Address) == was {
			t.Errorf("%s: an address still shares memory with the rules", name)
		}
	}
}
