package proxyrules

import (
	"math"

	"nodegate/internal/ruleset"
)

// judgeDispatch: invariant 2. A Service's chain is MARK-MASQ rules, affinity rules, then n dispatch rules of which the k-th
// takes 1/(n-k+1) of what is left and the last takes the rest. It returns the endpoints with the chance of each.
func (a *audit) judgeDispatch(n *node, c *chain) []Endpoint {
	a.targets, a.recents = a.targets[:0], a.recents[:0]
	blackhole := false
	for i := range c.Rules {
		r := &c.Rules[i]
		kind, _ := serviceChain(r.Target)
		switch {
		case r.Target == "KUBE-MARK-MASQ":
			if len(a.targets)+len(a.recents) > 0 {
				a.dispatchFinding("order", c, r, n, "packets are marked for masquerading after they were dispatched")
			}
		case kind == "SEP" && r.Has(ruleset.ByRecent):
			if len(a.targets) > 0 {
				a.dispatchFinding("order", c, r, n, "affinity is checked after connections were dispatched")
			}
			a.recents = append(a.recents, r)
		case kind == "SEP":
			a.targets = append(a.targets, r)
		case r.Target == "KUBE-MARK-DROP" && (c == n.xlb || c == n.svl) && a.version.Min < 25: // no local endpoints
			blackhole = true
		case c == n.xlb && kind == "SVC" && a.to(r) == n.svc:
		default:
			if !c.blamed {
				a.about("kubeproxy.chain.unexpected-rule", "nat", c, r, n, "kube-proxy writes no such rule into %s", c.Name)
			}
		}
	}
	if len(a.targets) == 0 && !blackhole {
		a.dispatchFinding("empty", c, nil, n, "%s has no endpoint", c.Name)
		return nil
	}
	a.judgeProbabilities(n, c)
	endpoints := a.endpoints()
	a.judgeAffinity(n, c)
	return endpoints
}

// dispatchFinding reports the first thing that is wrong with a chain's dispatch; what follows from it is silent.
func (a *audit) dispatchFinding(what string, c *chain, r *ruleset.Rule, n *node, format string, args ...any) {
	if !c.blamed {
		a.about("kubeproxy.dispatch."+what, "nat", c, r, n, format, args...)
	}
}

func (a *audit) judgeProbabilities(n *node, c *chain) {
	total := len(a.targets)
	a.stamp++
	for k, r := range a.targets {
		if r.Conditions()&^ruleset.ByChance != 0 {
			a.dispatchFinding("condition", c, r, n, "a dispatch rule may only depend on chance")
		}
		if to := a.to(r); to != nil {
			if to.stamp == a.stamp {
				a.dispatchFinding("duplicate", c, r, n, "%s is listed twice among %d dispatch rules", r.Target, total)
			}
			to.stamp = a.stamp
		}
		if k < total-1 && !r.Has(ruleset.ByChance) {
			a.dispatchFinding("shadowed", c, r, n, "an unconditional rule, number %d of %d: the endpoints after it get nothing", k+1, total)
		}
	}
	if total > 0 && a.targets[total-1].Has(ruleset.ByChance) {
		r := a.targets[total-1]
		a.dispatchFinding("last", c, r, n,
			"the last of %d rules takes only %.5f of what is left: the rest of the connections goes nowhere", total, r.Chance)
	}
	tolerance := 1e-9
	if a.version.Max < 17 {
		tolerance = 6e-6 // written with five digits
	}
	for k, r := range a.targets {
		if want := 1 / float64(total-k); k < total-1 && math.Abs(r.Chance-want) > tolerance {
			a.dispatchFinding("probability", c, r, n,
				"rule %d of %d has probability %.11f, 1/%d = %.11f is wanted: the endpoints do not get equal shares",
				k+1, total, r.Chance, total-k, want)
			return
		}
	}
}

// endpoints lists what a Service dispatches to, with the chance of each.
func (a *audit) endpoints() []Endpoint {
	list := make([]Endpoint, 0, len(a.targets))
	left := 1.0
	for _, r := range a.targets {
		e := Endpoint{Chain: r.Target, Line: int(r.Line), Chance: left}
		if r.Has(ruleset.ByChance) {
			e.Chance = left * r.Chance
		}
		left -= e.Chance
		if to := a.to(r); to != nil {
			e.Address = to.address
		}
		list = append(list, e)
	}
	return list
}

// judgeAffinity: invariant 3. The same endpoints are checked as are dispatched to, and each records its clients.
func (a *audit) judgeAffinity(n *node, c *chain) {
	if c.blamed {
		return
	}
	a.stamp++
	for i, r := range a.recents {
		recent, reaps := r.Extra(), r.Has(ruleset.RecentReap)
		switch first := a.recents[0].Extra().Seconds; {
		case recent.Recent != r.Target || r.Has(ruleset.RecentOther):
			a.about("kubeproxy.affinity.name", "nat", c, r, n, "the rule checks list %s and leads to %s", recent.Recent, r.Target)
			return
		case recent.Seconds != first || !reaps:
			a.about("kubeproxy.affinity.timeout", "nat", c, r, n, "rule %d of %d: %d seconds, reap %t; the first has %d",
				i+1, len(a.recents), recent.Seconds, reaps, first)
			return
		}
		if to := a.to(r); to != nil {
			to.stamp = a.stamp
		}
		n.out.AffinitySeconds = int(recent.Seconds)
	}
	for _, r := range a.targets {
		to := a.to(r)
		if to == nil || to.blamed || to.translate == nil {
			continue
		}
		dnat := to.translate
		switch records := dnat.Has(ruleset.RecentSet); {
		case len(a.recents) > 0 && to.stamp != a.stamp, len(a.recents) == 0 && records:
			a.about("kubeproxy.affinity.set", "nat", c, r, n, "%s is dispatched to but not checked for affinity", r.Target)
			return
		case len(a.recents) > 0 && (!records || dnat.Extra().Recent != r.Target || dnat.Has(ruleset.RecentOther)):
			a.about("kubeproxy.affinity.record", "nat", to, dnat, n, "%s does not record its clients in its own list", r.Target)
			return
		}
	}
	if len(a.recents) > len(a.targets) {
		last := a.recents[len(a.recents)-1]
		a.about("kubeproxy.affinity.set", "nat", c, last, n, "%d affinity rules for %d endpoints", len(a.recents), len(a.targets))
	}
}
