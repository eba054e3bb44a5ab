package proxyrules

import (
	"slices"

	"nodegate/internal/ruleset"
	"nodegate/internal/way"
)

// judgeMarked judges the packets that kube-proxy marks for masquerading: unless they reach its
// chain, or another rule masquerades them, replies bypass this node.
func (r *reach) judgeMarked(sets []*ruleset.Set) {
	for _, t := range ruleset.Tables(sets, "nat") {
		if t.Family != r.family || !t.Declares("KUBE-POSTROUTING") {
			continue
		}
		for rule := range t.Rules("KUBE-MARK-MASQ") {
			bit, _, ok := markMask(rule.Extra().SetMark)
			if !ok {
				return
			}
			p := way.Packet{State: way.StateNew, Mark: way.Mark{Value: uint32(bit)}}
			r.judgeMasquerade(r.rules.Postrouting(p, toPostrouting))
			return
		}
	}
}

// toPostrouting stops a walk at kube-proxy's chain that masquerades.
func toPostrouting(table, chain string) way.Visit {
	if table == "nat" && chain == "KUBE-POSTROUTING" {
		return way.Stop
	}
	return way.Follow
}

func (r *reach) judgeMasquerade(ways []way.Way) {
	right := func(w way.Way) bool { return w.End == way.Reached || w.Packet.Masqueraded() }
	reached := slices.ContainsFunc(ways, func(w way.Way) bool { return right(w) || w.End == way.Lost })
	for _, w := range ways {
		if right(w) || w.End != way.Forwarded || reached && !w.Sure {
			continue
		}
		if !reached {
			w.Chance = 1
		}
		if step, ok := decider(w); ok && step.Unsure == "" {
			r.add(step, w, "that kube-proxy marks").masquerade = true
			return
		}
	}
}
