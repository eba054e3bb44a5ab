package proxy

import (
	"math"
	"strings"

	"nodegate/internal/ruleset"
)

// judgeDispatch checks invariant 2. A Service's chain contains MARK-MASQ rules, affinity rules, then n dispatch rules, of which rule k
// takes 1/(n-k+1) of the remaining connections and the last takes the rest. It returns the endpoints with the probability of each.
func (a *audit) judgeDispatch(n *node, c *chain) []Endpoint {
	a.targets, a.recents = a.targets[:0], a.recents[:0]
	blackhole := false
	for i := range c.Rules {
		r := &c.Rules[i]
		kind, _ := serviceChain(r.Target)
		switch {
		case r.Target == "KUBE-MARK-MASQ":
			if len(a.targets)+len(a.recents) > 0 {
				a.dispatchFinding("order", c, r, n, "packets are marked for masquerading after the dispatch")
			}
		case kind == "SEP" && r.Has(ruleset.ByRecent):
			if len(a.targets) > 0 {
				a.dispatchFinding("order", c, r, n, "affinity is checked after the dispatch")
			}
			a.recents = append(a.recents, r)
		case kind == "SEP":
			a.targets = append(a.targets, r)
		case r.Target == "KUBE-MARK-DROP" && (c == n.xlb || c == n.svl) && a.version.Min < 25: // no local endpoints
			blackhole = true
		case c == n.xlb && kind == "SVC" && a.target(r) == n.svc:
		default:
			if !c.blamed {
				a.addFinding("kubeproxy.chain.unexpected-rule", "nat", c, r, n, "kube-proxy does not write this rule into %s", c.Name)
			}
		}
	}
	if len(a.targets) == 0 && !blackhole {
		a.dispatchFinding("empty", c, nil, n, "no rule of %s leads to an endpoint", c.Name)
		return nil
	}
	a.judgeProbabilities(n, c)
	endpoints := a.endpoints()
	a.judgeAffinity(n, c)
	return endpoints
}

// dispatchFinding reports the first fault of a chain's dispatch. Its consequences are not reported.
func (a *audit) dispatchFinding(what string, c *chain, r *ruleset.Rule, n *node, format string, args ...any) {
	if !c.blamed {
		a.addFinding("kubeproxy.dispatch."+what, "nat", c, r, n, format, args...)
	}
}

func (a *audit) judgeProbabilities(n *node, c *chain) {
	total := len(a.targets)
	a.stamp++
	for k, r := range a.targets {
		if r.Conditions()&^ruleset.ByChance != 0 {
			a.dispatchFinding("condition", c, r, n, "a dispatch rule must have no condition other than probability")
		}
		if to := a.target(r); to != nil {
			if to.stamp == a.stamp {
				a.dispatchFinding("duplicate", c, r, n, "%s is listed twice among %d dispatch rules", r.Target, total)
			}
			to.stamp = a.stamp
		}
		if k < total-1 && !r.Has(ruleset.ByChance) {
			a.dispatchFinding("shadowed", c, r, n, "rule %d of %d has no condition: the endpoints after it get no connections", k+1, total)
		}
	}
	if total > 0 && a.targets[total-1].Has(ruleset.ByChance) {
		r := a.targets[total-1]
		a.dispatchFinding("last", c, r, n, "the last of %d rules takes only %.5f of the remaining connections: the others fail", total, r.Chance)
	}
	tolerance := 1e-9
	if a.version.Max < 17 {
		tolerance = 6e-6 // kube-proxy wrote five digits
	}
	for k, r := range a.targets {
		if want := 1 / float64(total-k); k < total-1 && math.Abs(r.Chance-want) > tolerance {
			a.dispatchFinding("probability", c, r, n,
				"rule %d of %d has probability %.11f instead of 1/%d = %.11f: the endpoints get unequal shares",
				k+1, total, r.Chance, total-k, want)
			return
		}
	}
}

// endpoints lists the endpoints of a Service with the probability of each.
func (a *audit) endpoints() []Endpoint {
	list := make([]Endpoint, 0, len(a.targets))
	left := 1.0
	for _, r := range a.targets {
		e := Endpoint{Chain: r.Target, Line: int(r.Line), Chance: left}
		if r.Has(ruleset.ByChance) {
			e.Chance = left * r.Chance
		}
		left -= e.Chance
		if to := a.target(r); to != nil {
			e.Address = to.address
		}
		list = append(list, e)
	}
	return list
}

// judgeExternal checks invariant 8, the KUBE-EXT chain (1.24 and later). Policy Cluster marks all packets and jumps to SVC. Policy Local
// sends packets of Pods to SVC, marks packets of this node and sends them to SVC, and sends the rest to SVL if there are local endpoints.
func (a *audit) judgeExternal(n *node) {
	c := n.ext
	if c.blamed {
		return
	}
	at := external{}
	for i := range c.Rules {
		r := &c.Rules[i]
		what := externalRule(r, a.target(r), n)
		if what != "" && at[what] == 0 {
			at[what] = i + 1
			continue
		}
		switch kind, _ := serviceChain(r.Target); {
		case kind != "":
			a.addFinding("kubeproxy.external.dispatch", "nat", c, r, n, "%s jumps to %s, a chain of another Service", c.Name, r.Target)
		default:
			a.addFinding("kubeproxy.chain.unexpected-rule", "nat", c, r, n, "kube-proxy does not write this rule into %s", c.Name)
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
			name, blamed, why = "pod", "pod", "this rule identifies Pods by a different range than the rules for ClusterIPs: "+pods
		}
	}
	if name == "" {
		a.judgeNoLocal(n, at)
		return
	}
	var r *ruleset.Rule
	if at[blamed] > 0 {
		r = &c.Rules[at[blamed]-1]
	}
	a.addFinding("kubeproxy.external."+name, "nat", c, r, n, "%s: %s", c.Name, why)
}

// podRange returns the range or interface by which kube-proxy identifies Pods, or "" if it does
// not: for "not from interface cni0" it is cni0.
func podRange(detector string) string {
	rest, ok := strings.CutPrefix(detector, "not from ")
	if !ok {
		return ""
	}
	return strings.TrimPrefix(rest, "interface ")
}

// externalRule returns the purpose of a rule in a KUBE-EXT chain, or "" if kube-proxy does not write such a rule.
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

// external maps the purposes of the rules for external traffic to their positions, from 1. Policy Cluster has mark and cluster. Policy
// Local has pod, markHost and toHost, and toLocal if there are local endpoints.
type external map[string]int

func (at external) local() bool {
	return at["pod"]+at["markHost"]+at["toHost"]+at["toLocal"] > 0
}

// judge returns the last part of a finding's name, the rule with the fault and the reason. The name is empty if the rules are correct.
// With detector, Pods have a rule of their own. local is the chain of local endpoints, or "".
func (at external) judge(detector bool, local string) (name, blamed, why string) {
	if !at.local() {
		switch {
		case at["mark"]+at["cluster"] == 0:
			return "empty", "", "the chain has no rules: external traffic is not handled"
		case at["cluster"] == 0:
			return "dispatch", "mark", "no rule leads to the Service's endpoints"
		case at["mark"] == 0:
			return "masquerade", "cluster", "external traffic is not masqueraded: replies from endpoints on other nodes bypass this node"
		case at["mark"] > at["cluster"]:
			return "order", "mark", "packets are dispatched before they are marked"
		}
		return "", "", ""
	}
	switch {
	case at["mark"] > 0:
		return "masquerade", "mark", "policy Local preserves the client address, but all traffic is masqueraded"
	case at["cluster"] > 0:
		return "dispatch", "cluster", "the policy is Local, but traffic goes to all endpoints"
	case at["markHost"] == 0:
		return "masquerade", "toHost", "traffic from the node itself is not masqueraded"
	case at["toHost"] == 0:
		return "dispatch", "markHost", "traffic from the node itself does not reach the endpoints"
	case at["pod"] == 0 && detector:
		return "pod", "markHost", "Pods of this node cannot reach endpoints on other nodes"
	case at["toLocal"] == 0 && local != "":
		return "dispatch", "toHost", "no rule leads to " + local + ", the chain of local endpoints"
	case at["markHost"] > at["toHost"], at["pod"] > at["markHost"],
		at["toLocal"] > 0 && (at["toLocal"] < at["toHost"] || at["toLocal"] < at["pod"]):
		return "order", "markHost", "the rules are out of order"
	}
	return "", "", ""
}
