package path_test

import (
	"strings"
	"testing"
	"time"

	"nodegate/internal/audit/path"
	"nodegate/internal/ruleset"
)

// FuzzWalk checks that no rules, in either format, make a walk panic, and that the ways of a packet
// share it.
func FuzzWalk(f *testing.F) {
	f.Add("*nat\n:PREROUTING ACCEPT [0:0]\n:A - [0:0]\n-A PREROUTING ! -s 10.0.0.0/8 -p udp -m udp --dport 53 -j DNAT --to-destination 10.0.0.1:53\n" +
		"-A PREROUTING -m statistic --mode random --probability 0.5 -g A\n-A A -m mark --mark 0x1/0x1 -j RETURN\nCOMMIT\n")
	f.Add(nft("filter", "prerouting", 0, "drop", `{"vmap": {"key": {"meta": {"key": "l4proto"}}, "data": {"set": [["udp", {"jump": {"target": "sub"}}]]}}}`,
		`sub {"mangle": {"key": {"meta": {"key": "mark"}}, "value": {"|": [{"meta": {"key": "mark"}}, 1]}}}`))
	f.Fuzz(func(t *testing.T, text string) {
		set, err := ruleset.Parse("", strings.NewReader(text))
		if err != nil {
			return
		}
		for _, family := range []string{ruleset.IPv4, ruleset.IPv6} {
			rules := path.New([]*ruleset.Set{set}, family, path.Node{Elsewhere: path.NotOfPods})
			for _, own := range []bool{false, true} {
				total := 0.0
				for _, w := range rules.Walk(path.Packet{State: path.StateNew, Own: own}, "", nil) {
					total += w.Chance
				}
				if total < 0.999 || total > 1.001 {
					t.Errorf("the ways share %f of the packet", total)
				}
			}
		}
	})
}

// TestEndlessChains checks that chains which call each other do not keep a walk.
func TestEndlessChains(t *testing.T) {
	loop := save("filter", ":A - [0:0]\n:B - [0:0]\n-A FORWARD -j A\n-A A -j B\n-A A -j B\n-A B -j A\n-A B -j A")
	began := time.Now()
	ways := path.New(parse(t, loop), ruleset.IPv4, path.Node{}).Walk(path.Packet{State: path.StateNew, ToNode: path.No}, "", nil)
	if len(ways) == 0 || ways[0].End != path.Lost || ways[0].Sure {
		t.Errorf("%s after %s", show(ways), time.Since(began))
	}
}
