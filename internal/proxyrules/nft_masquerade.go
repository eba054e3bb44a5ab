package proxyrules

import "nodegate/internal/ruleset"

// judgeMasquerade: until 1.35 mark-for-masquerade sets a bit and masquerading returns unmarked packets, clears the bit and
// masquerades; 1.36 does the same in one rule and adds hairpin traffic by a set.
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
		a.about(name, c, nil, nil, "chain masquerading never masquerades")
	case test == nil || !one && (!test.MarkUnset || test.Verdict != "return"):
		a.about(name, c, masquerade, nil,
			"chain masquerading does not pass over unmarked packets: it masquerades all traffic that leaves the node")
	case toggle == nil:
		a.about(name, c, masquerade, nil, "chain masquerading does not clear the mark: a tunnelled packet is masqueraded a second time")
	case one && test.MarkUnset:
		a.about(name, c, masquerade, nil, "chain masquerading takes unmarked packets, not marked ones")
	case a.version.Min >= 36 && hairpin == nil:
		a.about(name, c, nil, nil,
			"chain masquerading does not look at @hairpin-connections: endpoints cannot reach themselves through their Service")
	case a.mark != 0 && (test.MarkTest != a.mark || toggle.MarkToggle != a.mark):
		a.about("kubeproxy.masquerade.mismatch", c, test, nil,
			"packets are marked with %#x; masquerading tests %#x and clears %#x", a.mark, test.MarkTest, toggle.MarkToggle)
	case !masquerade.FullyRandom:
		a.about("kubeproxy.masquerade.random-fully", c, masquerade, nil, "masquerade without fully-random")
	}
}

// judgeMark returns the bit that marks packets; 0 when there is none to compare with.
func (a *nftAudit) judgeMark() uint64 {
	c := a.chain("mark-for-masquerade")
	if c == nil {
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
		a.about("kubeproxy.masquerade.mark", c, nil, nil, "mark-for-masquerade does not set one bit of the mark on every packet")
		return 0
	}
	return c.Rules[0].MarkSet
}

// judgeExternal: external traffic under policy Cluster is marked and goes to the Service's chain. Under policy Local pods and the
// node itself are sent there too (the node's traffic marked), the rest goes to local endpoints if there are any.
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
		case marks(r) && r.Always():
			what = "mark"
		case marks(r) && r.FromLocal:
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
			a.about("kubeproxy.external.dispatch", c, r, n, "%s leads to %s", c.Name, r.Target)
			return
		case what == "" || at[what] > 0:
			a.about("kubeproxy.chain.unexpected-rule", c, r, n, "kube-proxy writes no such rule into %s", c.Name)
			return
		}
		at[what] = i + 1
	}
	n.out.ExternalLocal = at.local()
	local := ""
	if n.local != nil && len(n.local.Rules) > 0 {
		local = n.local.Name
	}
	if name, _, why := at.judge(a.detector != "" && a.detector != "all", local); name != "" {
		a.about("kubeproxy.external."+name, c, nil, n, "%s: %s", c.Name, why)
	}
}
