package path_test

import (
	"fmt"
	"strings"
	"testing"

	"nodegate/internal/audit/path"
	"nodegate/internal/ruleset"
)

// nested returns n chains, each of which may change the mark three times and then calls the next one `jumps` times, all
// under conditions that are not known.
func nested(n, jumps int, marks bool) string {
	var b strings.Builder
	for i := range n + 1 {
		fmt.Fprintf(&b, ":c%d - [0:0]\n", i)
	}
	b.WriteString("-A PREROUTING -j c0\n")
	for i := range n {
		for k := 0; marks && k < 3; k++ {
			fmt.Fprintf(&b, "-A c%d -m set --match-set m%d%d src -j MARK --set-xmark %#x/%#x\n", i, i, k, 1<<((i*3+k)%32), 1<<((i*3+k)%32))
		}
		for k := range jumps {
			fmt.Fprintf(&b, "-A c%d -m set --match-set a%d src -j c%d\n", i, k, i+1)
		}
	}
	return b.String()
}

// TestNestedChains checks that chains which lead to each other under unknown conditions neither take the product of
// their rules nor hide a rule behind them.
func TestNestedChains(t *testing.T) {
	for _, c := range []struct {
		what, rules string
	}{
		{"40 chains, two ways between each", nested(40, 2, false)},
		{"4 chains with marks", nested(4, 3, true)},
		{"12 chains with marks", nested(12, 3, true)},
		{"40 chains with marks", nested(40, 3, true)},
	} {
		rules := path.New(parse(t, save("raw", c.rules), save("filter", "-A FORWARD -p udp -j DROP")), ruleset.IPv4, path.Node{})
		step, w, lost := path.DropsSurely(rules.Walk(path.Packet{State: path.StateNew, ToNode: path.No, Protocol: "udp"}, "", nil))
		if !lost || w.Chance != 1 || step.Chain != "FORWARD" {
			t.Errorf("%s: %+v, %v", c.what, step, lost)
		}
	}
}
