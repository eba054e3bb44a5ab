package proxy

import (
	"fmt"
	"slices"
	"strings"

	"nodegate/internal/audit/path"
	"nodegate/internal/ruleset"
)

// noteUnreached makes a note of each chain that masquerades and to which no rule leads: another program may have deleted the CNI
// plugin's jump. If the network routes the Pods' addresses, nothing is lost.
func (r *reach) noteUnreached(sets []*ruleset.Set) {
	for _, t := range ruleset.Tables(sets, "nat") {
		var masquerade []string
		reached := map[string]bool{}
		for _, c := range t.Chains {
			does := false
			for i := 0; t.Family == r.family && !strings.HasPrefix(c.Name, "KUBE-") && i < len(c.Rules); i++ {
				target := c.Rules[i].Target
				reached[target], does = true, does || target == "MASQUERADE" || target == "SNAT"
			}
			if does && c.Policy == "-" {
				masquerade = append(masquerade, c.Name)
			}
		}
		for _, chain := range masquerade {
			if !reached[chain] {
				r.rep.Notes = append(r.rep.Notes, fmt.Sprintf("chain %s of table nat masquerades packets, but no rule leads to it: unless the "+
					"network routes the addresses of Pods, restart the program that adds the chain", chain))
			}
		}
	}
}

// noteSinglePods makes a note of each rule that drops the packets of one Pod of this node, if a rule or set names its address.
func (r *reach) noteSinglePods() {
	for _, a := range r.classes().Within(r.local.To) {
		p := path.Packet{Source: path.Addr(a), In: r.local.Link, State: path.StateNew, NotTo: r.pods, Unnamed: true}
		step, _, lost := path.DropsSurely(r.rules.Forwarded(p))
		if lost {
			r.noteLoss(fmt.Sprintf("packets of %s, an address of Pods of this node, to other machines", a), step)
		}
	}
}

// noteLoss makes a note of a rule that loses some packets, unless a finding is about it.
func (r *reach) noteLoss(packets string, step path.Step) {
	t := taken{step: step}
	if note := packets + ": " + t.describe(); r.found[stepKey(step)] == nil && !r.isExcused(step) && !slices.Contains(r.rep.Notes, note) {
		r.rep.Notes = append(r.rep.Notes, note)
	}
}
