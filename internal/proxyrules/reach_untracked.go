package proxyrules

import (
	"net/netip"
	"slices"

	"nodegate/internal/way"
)

// judgeUntracked judges the replies of the endpoints that are Pods: conntrack must see them at PREROUTING, or it does not
// restore the address of the Service.
func (r *reach) judgeUntracked() {
	every := way.Packet{State: way.StateEstablished, ToNode: way.No}
	if !slices.ContainsFunc(r.rules.Walk(every, way.Prerouting, nil), isUntracked) {
		return
	}
	type replies struct {
		step way.Step
		way  way.Way
		lost bool
	}
	walked := map[way.Class]replies{}
	for i := range r.rep.Services {
		s := &r.rep.Services[i]
		for _, e := range s.Endpoints {
			at, err := netip.ParseAddrPort(e.Address)
			if s.Family != r.family || err != nil || r.own(at.Addr()) == way.Yes {
				continue
			}
			class := r.classes().Of(at.Addr(), s.Protocol, at.Port())
			got, known := walked[class]
			if !known {
				p := every
				p.Source, p.SourcePort, p.Protocol = way.Addr(at.Addr()), at.Port(), s.Protocol
				ways := r.rules.Walk(p, way.Prerouting, nil)
				if got.step, got.lost = untracksSurely(ways); got.lost {
					got.way = ways[0]
				}
				walked[class] = got
			}
			if !got.lost || r.found[stepKey(got.step)] != nil && !r.found[stepKey(got.step)].replies || way.EnforcesPolicies(got.step.Owner()) {
				continue
			}
			r.add(got.step, got.way, "of endpoints to the clients of Services").replies = true
		}
	}
}

func isUntracked(w way.Way) bool { return w.Packet.State == way.StateUntracked }

// untracksSurely returns the rule that certainly excludes a packet from conntrack.
func untracksSurely(ways []way.Way) (step way.Step, surely bool) {
	for _, w := range ways {
		if !isUntracked(w) {
			return way.Step{}, false
		}
		for _, s := range w.Steps {
			if s.Effect == way.Untracks {
				step = s
			}
		}
	}
	return step, step.Effect == way.Untracks && step.Unsure == ""
}
