package proxy

import (
	"net/netip"

	"nodegate/internal/audit/path"
	"nodegate/internal/ruleset"
)

// LostQuery describes the rule that may drop packets of the audit's own query to a page at an address of this node, or of the answer.
func LostQuery(sets []*ruleset.Set, page netip.AddrPort) (does, remedy string, lost bool) {
	rules, here := path.New(sets, familyOf(page.Addr()), path.Node{}), path.Addr(page.Addr())
	first := path.Packet{Source: here, Destination: here, Protocol: "tcp", SourcePort: anyPort, Port: page.Port(), ToNode: path.Yes,
		State: path.StateNew}
	later := first
	later.State = path.StateEstablished
	answer := later
	answer.SourcePort, answer.Port = page.Port(), anyPort
	for _, out := range []path.Packet{first, later, answer} {
		in := out
		out.Own, out.Out, in.In = true, "lo", "lo"
		for _, p := range []path.Packet{out, in} {
			for _, w := range rules.Walk(p, "", nil) {
				if isDropped(w) && len(w.Steps) > 0 {
					t := taken{step: w.Steps[len(w.Steps)-1], way: w}
					return t.describe(), t.remedy(), true
				}
			}
		}
	}
	return "", "", false
}
