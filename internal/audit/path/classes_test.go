package path_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"nodegate/internal/audit/path"
	"nodegate/internal/ruleset"
)

// TestClasses checks with random rules that packets to two destinations of one class have the same ways.
func TestClasses(t *testing.T) {
	r := random{rand.New(rand.NewPCG(7, 7))}
	shared := 0
	own := func(a netip.Addr) path.Answer {
		if a.String() == "192.0.2.1" {
			return path.Yes
		}
		return path.No
	}
	for range 200 {
		text := r.save()
		sets := parse(t, text)
		rules := path.New(sets, ruleset.IPv4, path.Node{Own: own})
		classes := path.NewClasses(sets, ruleset.IPv4, own)
		seen := map[path.Class]string{}
		for _, to := range []string{"10.96.0.1", "10.96.0.2", "10.96.0.10", "10.96.0.200", "192.0.2.1", "192.0.2.9", "10.1.0.9", "203.0.113.1"} {
			for _, port := range []uint16{53, 80, 8000, 60} {
				p := path.Packet{Destination: path.Addr(netip.MustParseAddr(to)), Port: port, Protocol: "udp", State: path.StateNew}
				ways := ""
				for _, w := range rules.Walk(p, "", nil) {
					w.Packet = path.Packet{}
					ways += show([]path.Way{w})
				}
				class := classes.Of(p.Destination.Addr(), "udp", port)
				if before, known := seen[class]; known {
					if shared++; before != ways {
						t.Fatalf("%s:%d: got\n%swant\n%s\n%s", to, port, ways, before, text)
					}
				}
				seen[class] = ways
			}
		}
	}
	if shared < 1000 {
		t.Errorf("only %d destinations shared a class", shared)
	}
}

// TestManyMarks checks that 300 sets, each of which may give a packet another mark, do not lead to 2^31
// states: the mark is then not known, and a rule that does not look at it still decides.
func TestManyMarks(t *testing.T) {
	var marks strings.Builder
	for i := range 300 {
		fmt.Fprintf(&marks, "-A PREROUTING -m set --match-set s%d src -j MARK --set-xmark %#x/%#x\n", i, 1<<(i%31), 1<<(i%31))
	}
	rules := path.New(parse(t, save("mangle", marks.String()), save("filter", "-A FORWARD -m mark --mark 0x1/0x1 -j ACCEPT\n-A FORWARD -p udp -j DROP")),
		ruleset.IPv4, path.Node{})
	p := path.Packet{State: path.StateNew, ToNode: path.No, Protocol: "udp"}
	ends := map[path.End]bool{}
	for _, w := range rules.Walk(p, "", nil) {
		ends[w.End] = true
	}
	if !ends[path.Dropped] || !ends[path.Forwarded] || ends[path.Lost] {
		t.Errorf("ends: %v", ends)
	}
}
