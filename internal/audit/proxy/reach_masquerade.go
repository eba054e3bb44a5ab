package proxy

import (
	"slices"

	"nodegate/internal/audit/path"
	"nodegate/internal/ruleset"
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
			p := path.Packet{State: path.StateNew, Mark: path.Mark{Value: uint32(bit)}}
			r.judgeMasquerade(p)
			return
		}
	}
}

// judgeMasquerade judges marked packets by their senders. Of the packets of Pods, kube-proxy marks those to other
// addresses than ClusterIPs, whose replies come back through this node anyway, and packets of a Pod to itself.
func (r *reach) judgeMasquerade(marked path.Packet) {
	const who = "that kube-proxy marks"
	classes := []sender{{who, marked}}
	if r.pods.IsValid() {
		others, itself := marked, marked
		others.NotFrom = r.pods
		itself.Source, itself.Destination = r.pods, r.pods
		classes = append(classes, sender{who + " from other machines", others}, sender{"of a Pod to itself " + who, itself})
	}
	for i, c := range classes {
		step, w, lost := notMasqueraded(r.rules.Postrouting(c.packet, toPostrouting))
		if !lost || step.Owner() == "Cilium" || i > 0 && r.found[stepKey(step)] != nil {
			continue
		}
		t := r.add(step, w, c.who)
		t.masquerade, t.minor = true, i == len(classes)-1 && i > 0
	}
}

// toPostrouting stops a walk at kube-proxy's chain that masquerades.
func toPostrouting(table, chain string) path.Visit {
	if table == "nat" && chain == "KUBE-POSTROUTING" {
		return path.Stop
	}
	return path.Follow
}

// notMasqueraded returns the rule that takes marked packets before kube-proxy's chain masquerades them.
func notMasqueraded(ways []path.Way) (step path.Step, of path.Way, lost bool) {
	right := func(w path.Way) bool { return w.End == path.Reached || w.Packet.Masqueraded() }
	reached := slices.ContainsFunc(ways, func(w path.Way) bool { return right(w) || w.End == path.Lost })
	for _, w := range ways {
		if right(w) || w.End != path.Forwarded || reached && !w.Sure {
			continue
		}
		if !reached {
			w.Chance = 1
		}
		if step, ok := decider(w); ok && step.Unsure == "" {
			return step, w, true
		}
	}
	return path.Step{}, path.Way{}, false
}
