package kubeproxy

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
