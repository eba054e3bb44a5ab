package proxy

import (
	"net/netip"
	"slices"
	"strings"

	"nodegate/internal/audit/path"
)

// judgeUntracked judges the replies of the endpoints that are Pods: conntrack must see them at PREROUTING, or it does not
// restore the address of the Service.
func (r *reach) judgeUntracked() {
	every := path.Packet{State: path.StateEstablished, ToNode: path.No}
	if !slices.ContainsFunc(r.rules.Walk(every, path.Prerouting, nil), isUntracked) {
		return
	}
	type replies struct {
		step path.Step
		way  path.Way
		lost bool
	}
	walked := map[path.Class]replies{}
	for i := range r.rep.Services {
		s := &r.rep.Services[i]
		for _, e := range s.Endpoints {
			at, err := netip.ParseAddrPort(e.Address)
			if s.Family != r.family || err != nil || r.own(at.Addr()) == path.Yes {
				continue
			}
			class := r.classes().Of(at.Addr(), s.Protocol, at.Port())
			got, known := walked[class]
			if !known {
				p := every
				p.Source, p.SourcePort, p.Protocol = path.Addr(at.Addr()), at.Port(), s.Protocol
				ways := r.rules.Walk(p, path.Prerouting, nil)
				if got.step, got.lost = untracksSurely(ways); got.lost {
					got.way = ways[0]
				}
				walked[class] = got
			}
			if !got.lost || r.found[stepKey(got.step)] != nil && !r.found[stepKey(got.step)].replies || path.EnforcesPolicies(got.step.Owner()) {
				continue
			}
			r.add(got.step, got.way, "of endpoints to the clients of Services").replies = true
		}
	}
}

func isUntracked(w path.Way) bool { return w.Packet.State == path.StateUntracked }

// untracksSurely returns the rule that certainly excludes a packet from conntrack.
func untracksSurely(ways []path.Way) (step path.Step, surely bool) {
	for _, w := range ways {
		if !isUntracked(w) {
			return path.Step{}, false
		}
		for _, s := range w.Steps {
			if s.Effect == path.Untracks {
				step = s
			}
		}
	}
	return step, step.Effect == path.Untracks && step.Unsure == ""
}

// otherZone returns the rule that puts a translated connection, or its replies, into a zone of its own: conntrack searches replies in
// their zone alone.
func otherZone(sent *path.Way, replies []path.Way) (step path.Step, of path.Way, is bool) {
	for _, w := range replies {
		if w.Packet.Zone == sent.Packet.Zone || !sent.Packet.Translated() && !sent.Packet.Masqueraded() {
			return path.Step{}, path.Way{}, false
		}
		for _, s := range slices.Concat(sent.Steps, w.Steps) {
			if strings.HasPrefix(s.Does, path.InZone) && s.Unsure == "" {
				step, of, is = s, w, true
			}
		}
	}
	return step, of, is
}
