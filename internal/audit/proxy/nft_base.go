package proxy

import (
	"slices"
	"strings"

	"nodegate/internal/ruleset"
)

// judgeContainers checks that the maps and sets used by the rules exist.
func (a *nftAudit) judgeContainers() {
	for _, want := range []struct {
		name  string
		since int
	}{
		{"service-ips", 29}, {"service-nodeports", 29}, {"no-endpoint-services", 29}, {"no-endpoint-nodeports", 29},
		{"firewall-ips", 30}, {"cluster-ips", 30}, {"hairpin-connections", 36},
	} {
		if a.version.Min >= want.since && a.t.Sets[want.name] == nil {
			a.mapDamaged = true
			a.addSetFinding("kubeproxy.nft.map", want.name, "", nil, "table %s %s has no %s", a.t.Family, ruleset.KubeProxyTable, want.name)
		}
	}
}

// baseChain is a chain that the kernel calls, with the chains to which kube-proxy jumps from it.
type baseChain struct {
	name, hook string
	prio       int
	jumps      []string
}

// baseChains returns the base chains of nftables mode. The filter chains moved in 1.30 and in 1.34.
// Of 1.29 (alpha), only the nat chains are judged.
func baseChains(minor int) []baseChain {
	list := []baseChain{
		{"nat-prerouting", "prerouting", -100, []string{"services"}},
		{"nat-output", "output", -100, []string{"services"}},
		{"nat-postrouting", "postrouting", 100, []string{"masquerading"}},
	}
	switch {
	case minor >= 34:
		list = append(list,
			baseChain{"filter-prerouting-pre-dnat", "prerouting", -110, []string{"firewall-check"}},
			baseChain{"filter-output-pre-dnat", "output", -110, []string{"firewall-check"}},
			baseChain{"filter-input", "input", 0, []string{"nodeport-endpoints-check", "service-endpoints-check"}},
			baseChain{"filter-forward", "forward", 0, []string{"service-endpoints-check", "cluster-ips-check"}},
			baseChain{"filter-output", "output", 0, []string{"service-endpoints-check", "cluster-ips-check"}})
	case minor >= 30:
		list = append(list,
			baseChain{"filter-prerouting", "prerouting", -110, []string{"firewall-check"}},
			baseChain{"filter-input", "input", -110, []string{"nodeport-endpoints-check", "service-endpoints-check"}},
			baseChain{"filter-forward", "forward", -110, []string{"service-endpoints-check", "cluster-ips-check"}},
			baseChain{"filter-output", "output", -110, []string{"service-endpoints-check", "firewall-check"}},
			baseChain{"filter-output-post-dnat", "output", -90, []string{"cluster-ips-check"}})
	}
	return list
}

func (a *nftAudit) judgeBaseChains() {
	for _, want := range baseChains(a.version.Min) {
		c := a.chain(want.name)
		if c == nil || c.Hook == "" {
			a.out.Add(Finding{Name: "kubeproxy.nft.base-chain", Family: a.t.Family, Table: ruleset.KubeProxyTable, Chain: want.name,
				Message: "no base chain " + want.name + " on hook " + want.hook})
			a.blame(want.jumps)
			continue
		}
		if c.Policy == "drop" {
			a.addFinding("kubeproxy.nft.base-chain", c, nil, nil,
				"%s has policy drop, kube-proxy's base chains accept: every packet of hook %s is dropped", c.Name, c.Hook)
			continue
		}
		if c.Hook != want.hook || c.Priority != want.prio {
			a.addFinding("kubeproxy.nft.base-chain", c, nil, nil,
				"%s is on hook %s with priority %d; it must be on hook %s with priority %d", c.Name, c.Hook, c.Priority, want.hook, want.prio)
			continue
		}
		for _, to := range want.jumps {
			found := false
			for _, r := range c.Rules {
				found = found || r.Target == to
			}
			if !found && !c.blamed {
				a.addFinding("kubeproxy.jump.missing", c, nil, nil, "%s has no jump to %s", c.Name, to)
				a.blame([]string{to})
			}
		}
	}
}

func (a *nftAudit) blame(chains []string) {
	for _, name := range chains {
		if c := a.chain(name); c != nil {
			c.blamed = true
		}
	}
}

// judgeLookups judges the chains between a base chain and a map.
func (a *nftAudit) judgeLookups() {
	for _, want := range []struct {
		chain, set, finding string
		since               int
	}{
		{"services", "service-ips", "kubeproxy.service.portals", 29},
		{"services", "service-nodeports", "kubeproxy.nodeports.missing", 29},
		{"service-endpoints-check", "no-endpoint-services", "kubeproxy.service.reject", 30},
		{"nodeport-endpoints-check", "no-endpoint-nodeports", "kubeproxy.service.reject", 30},
		{"firewall-check", "firewall-ips", "kubeproxy.firewall.unpaired", 30},
	} {
		c := a.chain(want.chain)
		if a.version.Min < want.since || c == nil && a.t.Sets[want.set] == nil {
			continue
		}
		if c == nil {
			continue // reported at the jump
		}
		found := slices.ContainsFunc(c.Rules, func(r *ruleset.NFTRule) bool { return r.Lookup == want.set })
		if !found && !c.blamed {
			a.addFinding(want.finding, c, nil, nil, "%s has no lookup in @%s", c.Name, want.set)
		}
	}
	if c := a.chain("reject-chain"); c != nil && !c.blamed && (len(c.Rules) != 1 || c.Rules[0].Verdict != "reject") {
		a.addFinding("kubeproxy.service.reject", c, nil, nil,
			"reject-chain does not reject packets: clients of Services without endpoints wait for a timeout")
	}
}

// findDetector determines which ClusterIP traffic is masqueraded: until 1.35 from the Services' own
// chains, from 1.36 from chain services.
func (a *nftAudit) findDetector() {
	count := map[string]int{}
	note := func(r *ruleset.NFTRule) {
		if marksPackets(r) && r.Destination != "" {
			count[nftDetector(r)]++
		}
	}
	if c := a.chain("services"); c != nil {
		for _, r := range c.Rules {
			note(r)
		}
	}
	for _, n := range a.nodes {
		for _, c := range []*nftChain{n.service, n.local} {
			if c != nil {
				for _, r := range c.Rules {
					note(r)
				}
			}
		}
	}
	most := 0
	for d, n := range count {
		if n > most || n == most && strings.Compare(d, a.detector) < 0 {
			a.detector, most = d, n
		}
	}
}

func nftDetector(r *ruleset.NFTRule) string {
	switch {
	case r.Source != "" && r.NotSource:
		return "not from " + r.Source
	case r.In != "" && r.NotSource:
		return "not from interface " + r.In
	case r.Source != "":
		return "from " + r.Source
	}
	return "all"
}

// judgeMasquerade judges the masquerading chains. Until 1.35, mark-for-masquerade sets a bit, and masquerading returns unmarked packets,
// clears the bit and masquerades. 1.36 does the same in one rule and adds hairpin traffic by a set.
func (a *nftAudit) judgeMasquerade() {
	a.mark = a.judgeMark()
	c := a.chain("masquerading")
	if c == nil || c.blamed {
		return
	}
	const name = "kubeproxy.masquerade.postrouting"
	var test, toggle, masquerade, hairpin *ruleset.NFTRule
	for _, r := range c.Rules {
		switch {
		case r.Masquerade && r.Other:
			hairpin = r
			continue
		case r.MarkTest != 0:
			test = r
		}
		if r.MarkToggle != 0 {
			toggle = r
		}
		if r.Masquerade {
			masquerade = r
		}
	}
	one := masquerade != nil && masquerade == test && masquerade == toggle
	switch {
	case masquerade == nil:
		a.addFinding(name, c, nil, nil, "chain masquerading never masquerades")
	case test == nil || !one && (!test.MarkUnset || test.Verdict != "return"):
		a.addFinding(name, c, masquerade, nil,
			"chain masquerading does not skip unmarked packets: it masquerades all traffic that leaves the node")
	case toggle == nil:
		a.addFinding(name, c, masquerade, nil, "chain masquerading does not clear the mark: a tunnelled packet is masqueraded a second time")
	case one && test.MarkUnset:
		a.addFinding(name, c, masquerade, nil, "chain masquerading matches unmarked packets instead of marked ones")
	case a.version.Min >= 36 && hairpin == nil:
		a.addFinding(name, c, nil, nil,
			"chain masquerading has no lookup in @hairpin-connections: endpoints cannot reach themselves through their Service")
	case a.mark != 0 && (test.MarkTest != a.mark || toggle.MarkToggle != a.mark):
		a.addFinding("kubeproxy.masquerade.mismatch", c, test, nil,
			"packets are marked with %#x, but chain masquerading tests %#x and clears %#x", a.mark, test.MarkTest, toggle.MarkToggle)
	case !masquerade.FullyRandom:
		a.addFinding("kubeproxy.masquerade.random-fully", c, masquerade, nil, "masquerade without fully-random")
	}
}

// judgeMark returns the bit that marks packets, or 0 without a rule to compare with. From
// 1.36, other rules set the bit themselves, and a chain mark-for-masquerade is left over from an
// older version.
func (a *nftAudit) judgeMark() uint32 {
	c := a.chain("mark-for-masquerade")
	if c == nil || a.version.Min >= 36 {
		if s := a.chain("services"); s != nil {
			for _, r := range s.Rules {
				if r.MarkSet != 0 {
					return r.MarkSet
				}
			}
		}
		return 0
	}
	if len(c.Rules) != 1 || c.Rules[0].MarkSet == 0 || !c.Rules[0].Always() {
		a.addFinding("kubeproxy.masquerade.mark", c, nil, nil, "mark-for-masquerade must set one bit of the mark on every packet")
		return 0
	}
	return c.Rules[0].MarkSet
}

// judgeExternal judges the chain for external traffic. Under policy Cluster, it marks all packets
// and jumps to the Service's chain. Under policy Local, packets of Pods and of the node go there
// too (the node's packets marked), and the rest goes to local endpoints if there are any.
func (a *nftAudit) judgeExternal(n *nftNode) {
	c := n.external
	if c.blamed {
		return
	}
	at := external{}
	for i, r := range c.Rules {
		what := ""
		to := a.chain(r.Target)
		switch {
		case marksPackets(r) && r.Always():
			what = "mark"
		case marksPackets(r) && r.FromLocal:
			what = "markHost"
		case to != nil && to == n.service && r.Always():
			what = "cluster"
		case to != nil && to == n.service && r.FromLocal:
			what = "toHost"
		case to != nil && to == n.service && (r.Source != "" || r.In != "") && !r.NotSource && !r.Other:
			what = "pod"
		case to != nil && to == n.local && r.Always():
			what = "toLocal"
		}
		kind, _, _ := nftKind(r.Target)
		switch {
		case what == "" && kind != "":
			a.addFinding("kubeproxy.external.dispatch", c, r, n, "%s jumps to %s", c.Name, r.Target)
			return
		case what == "" || at[what] > 0:
			a.addFinding("kubeproxy.chain.unexpected-rule", c, r, n, "kube-proxy does not write this rule into %s", c.Name)
			return
		}
		at[what] = i + 1
	}
	n.out.ExternalLocal, n.short = at.local(), at["pod"] > 0
	local := ""
	if n.local != nil && len(n.local.Rules) > 0 {
		local = n.local.Name
	}
	if name, _, why := at.judge(a.detector != "" && a.detector != "all", local); name != "" {
		a.addFinding("kubeproxy.external."+name, c, nil, n, "%s: %s", c.Name, why)
	} else {
		a.judgeNoLocal(n, at)
	}
}
