package kubeproxy

// judgeExternal: external traffic under policy Cluster is marked and goes to the Service's chain. Under policy Local pods and the
// node itself are sent there too (the node's traffic marked), the rest goes to local endpoints if there are any.
func (a *nftAudit) judgeExternal(n *nftNode) {
	c := n.external
	if c.blamed {
		return
	}
	place := map[string]int{}
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
		case what == "" || place[what] > 0:
			a.about("kubeproxy.chain.unexpected-rule", c, r, n, "kube-proxy writes no such rule into %s", c.Name)
			return
		}
		place[what] = i + 1
	}
	n.out.ExternalLocal = place["pod"]+place["markHost"]+place["toHost"]+place["toLocal"] > 0
	if name, why := nftExternal(place, n, a.detector != "" && a.detector != "all"); name != "" {
		a.about("kubeproxy.external."+name, c, nil, n, "%s: %s", c.Name, why)
	}
}

// nftExternal judges the places of the rules in the chain: 0 is a missing rule.
func nftExternal(at map[string]int, n *nftNode, detector bool) (name, why string) {
	if !n.out.ExternalLocal {
		switch {
		case at["mark"]+at["cluster"] == 0:
			return "empty", "external traffic is not answered"
		case at["cluster"] == 0:
			return "dispatch", "nothing leads to the Service's endpoints"
		case at["mark"] == 0:
			return "masquerade", "external traffic is not masqueraded: replies from other nodes' endpoints bypass this node"
		case at["mark"] > at["cluster"]:
			return "order", "traffic is dispatched before it is marked"
		}
		return "", ""
	}
	switch {
	case at["mark"] > 0:
		return "masquerade", "policy Local keeps the client's address, but everything is masqueraded"
	case at["cluster"] > 0:
		return "dispatch", "policy Local, but everything goes to all endpoints"
	case at["markHost"] == 0:
		return "masquerade", "what the node itself sends is not masqueraded"
	case at["toHost"] == 0:
		return "dispatch", "what the node itself sends does not reach the endpoints"
	case at["pod"] == 0 && detector:
		return "pod", "pods of this node cannot reach endpoints on others"
	case at["toLocal"] == 0 && n.local != nil && len(n.local.Rules) > 0:
		return "dispatch", "nothing leads to " + n.local.Name + ", the local endpoints"
	case at["markHost"] > at["toHost"], at["pod"] > at["markHost"],
		at["toLocal"] > 0 && (at["toLocal"] < at["toHost"] || at["toLocal"] < at["pod"]):
		return "order", "the rules are out of order"
	}
	return "", ""
}
