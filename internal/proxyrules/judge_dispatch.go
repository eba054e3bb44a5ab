package proxyrules

import (
	"math"
	"strings"

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

// judgeExternal: invariant 8, the KUBE-EXT chain (1.24 and later). Policy Cluster marks everything and goes to SVC. Policy Local
// sends pods to SVC, marks what this node itself sends and sends it to SVC, and leaves the rest to SVL if there are local endpoints.
func (a *audit) judgeExternal(n *node) {
	c := n.ext
	if c.blamed {
		return
	}
	at := external{}
	for i := range c.Rules {
		r := &c.Rules[i]
		what := externalRule(r, a.to(r), n)
		if what != "" && at[what] == 0 {
			at[what] = i + 1
			continue
		}
		switch kind, _ := serviceChain(r.Target); {
		case r.Jump == 0 && strings.HasPrefix(r.Target, "KUBE-"): // reported as undeclared
		case kind != "":
			a.about("kubeproxy.external.dispatch", "nat", c, r, n, "%s leads to %s, a chain of another Service", c.Name, r.Target)
		default:
			a.about("kubeproxy.chain.unexpected-rule", "nat", c, r, n, "kube-proxy writes no such rule into %s", c.Name)
		}
		return
	}
	n.out.ExternalLocal = at.local()
	local := ""
	if n.svl != nil {
		local = n.svl.Name
	}
	pods := podRange(a.detector)
	name, blamed, why := at.judge(pods != "", local)
	if pod := at["pod"]; name == "" && pod > 0 && pods != "" {
		if r := &c.Rules[pod-1]; pods != r.Source && pods != r.Extra().In {
			name, blamed, why = "pod", "pod", "pods are told apart by another range here than for ClusterIPs: "+pods
		}
	}
	if name == "" {
		return
	}
	var r *ruleset.Rule
	if at[blamed] > 0 {
		r = &c.Rules[at[blamed]-1]
	}
	a.about("kubeproxy.external."+name, "nat", c, r, n, "%s: %s", c.Name, why)
}

// podRange returns the range or interface by which kube-proxy knows pods, "" if it does not: of "not from interface cni0" it is cni0.
func podRange(detector string) string {
	rest, ok := strings.CutPrefix(detector, "not from ")
	if !ok {
		return ""
	}
	return strings.TrimPrefix(rest, "interface ")
}

// externalRule returns what a rule of a KUBE-EXT chain that leads to a chain does, "" if kube-proxy writes no such rule.
func externalRule(r *ruleset.Rule, to *chain, n *node) string {
	switch {
	case r.Target == "KUBE-MARK-MASQ" && r.Always():
		return "mark"
	case r.Target == "KUBE-MARK-MASQ" && r.Conditions() == ruleset.FromLocal:
		return "markHost"
	case to == nil:
	case to == n.svc && r.Always():
		return "cluster"
	case to == n.svc && r.Conditions() == ruleset.FromLocal:
		return "toHost"
	case to == n.svc && r.Conditions()&^(ruleset.BySource|ruleset.ByInterface) == 0:
		return "pod"
	case to == n.svl && r.Always():
		return "toLocal"
	}
	return ""
}

// external is the places, from 1, of the rules for external traffic by what they do. Policy Cluster has mark and cluster; policy Local
// has pod, markHost and toHost, and toLocal if there are local endpoints.
type external map[string]int

func (at external) local() bool {
	return at["pod"]+at["markHost"]+at["toHost"]+at["toLocal"] > 0
}

// judge returns the last part of a finding's name, which rule to blame and the reason; an empty name when all is well. With detector,
// pods have a rule of their own; local is the chain of local endpoints, "" if there is none.
func (at external) judge(detector bool, local string) (name, blamed, why string) {
	if !at.local() {
		switch {
		case at["mark"]+at["cluster"] == 0:
			return "empty", "", "there are no rules: external traffic is not answered"
		case at["cluster"] == 0:
			return "dispatch", "mark", "nothing leads to the Service's endpoints"
		case at["mark"] == 0:
			return "masquerade", "cluster", "external traffic is not masqueraded: replies from other nodes' endpoints bypass this node"
		case at["mark"] > at["cluster"]:
			return "order", "mark", "traffic is dispatched before it is marked"
		}
		return "", "", ""
	}
	switch {
	case at["mark"] > 0:
		return "masquerade", "mark", "policy Local keeps the client's address, but everything is masqueraded"
	case at["cluster"] > 0:
		return "dispatch", "cluster", "policy Local, but everything goes to all endpoints"
	case at["markHost"] == 0:
		return "masquerade", "toHost", "what the node itself sends is not masqueraded"
	case at["toHost"] == 0:
		return "dispatch", "markHost", "what the node itself sends does not reach the endpoints"
	case at["pod"] == 0 && detector:
		return "pod", "markHost", "pods of this node cannot reach endpoints on others"
	case at["toLocal"] == 0 && local != "":
		return "dispatch", "toHost", "nothing leads to " + local + ", the local endpoints"
	case at["markHost"] > at["toHost"], at["pod"] > at["markHost"],
		at["toLocal"] > 0 && (at["toLocal"] < at["toHost"] || at["toLocal"] < at["pod"]):
		return "order", "markHost", "the rules are out of order"
	}
	return "", "", ""
}
