package kubeproxy

import (
	"strings"
)

// judgeForward: INVALID packets are dropped before anything is accepted (kubernetes#74840), marked and established packets pass.
func (a *audit) judgeForward() {
	c := a.filter.chain("KUBE-FORWARD")
	if c == nil || c.blamed {
		return
	}
	var drop, accept, marked, established *rule
	for r := c.first; r != nil; r = r.next {
		switch {
		case r.target == "DROP" && r.has(condState) && strings.Contains(r.detail, "INVALID"):
			drop = r
		case r.target == "ACCEPT" && r.has(condMark):
			marked = r
		case r.target == "ACCEPT" && r.has(condState):
			established = r
		default:
			a.about("kubeproxy.chain.unexpected-rule", "filter", c, r, nil, "kube-proxy writes no such rule into KUBE-FORWARD")
			return
		}
		if r.target == "ACCEPT" && accept == nil {
			accept = r
		}
	}
	const want = "kubeproxy.forward.accept"
	switch {
	case drop == nil:
		a.judgeNoDrop(c)
	case accept != nil && accept.line < drop.line:
		a.about("kubeproxy.forward.invalid-order", "filter", c, drop, nil, "the ACCEPT in line %d comes first and lets INVALID packets through", accept.line)
	}
	switch {
	case marked == nil:
		a.about(want, "filter", c, nil, nil, "KUBE-FORWARD does not accept marked packets: with policy DROP, NodePort traffic stops")
	case established == nil && a.version.Min >= 22:
		a.about(want, "filter", c, nil, nil, "KUBE-FORWARD does not accept RELATED,ESTABLISHED: with policy DROP, replies stop")
	default:
		if mark, _, ok := markMask(marked.detail); a.mark != 0 && (!ok || mark != a.mark) {
			a.about("kubeproxy.masquerade.mismatch", "filter", c, marked, nil, "KUBE-MARK-MASQ sets %#x, this rule uses %s", a.mark, marked.detail)
		}
	}
}

// judgeNoDrop: from 1.29 the rule is left out when be_liberal was not 0 as kube-proxy started (kubernetes#120412).
func (a *audit) judgeNoDrop(c *chain) {
	switch {
	case a.opts.BeLiberal != nil && *a.opts.BeLiberal:
	case a.version.Max < 29 || a.opts.BeLiberal != nil:
		a.about("kubeproxy.forward.invalid-drop", "filter", c, nil, nil, "KUBE-FORWARD does not drop INVALID packets and nf_conntrack_tcp_be_liberal does not make up for it")
	default:
		a.about("kubeproxy.forward.be-liberal", "filter", c, nil, nil, "KUBE-FORWARD does not drop INVALID packets; from 1.29 that is right only while nf_conntrack_tcp_be_liberal=1, which the rules do not show")
	}
}

// judgeFirewall: KUBE-FIREWALL drops packets from outside to 127.0.0.0/8 and, until 1.27, marked ones. A DROP that has lost its
// match drops everything (kubernetes#112477).
func (a *audit) judgeFirewall() {
	c := a.filter.chain("KUBE-FIREWALL")
	if c == nil || c.blamed {
		return
	}
	localnet := false
	for r := c.first; r != nil; r = r.next {
		if r.target == "DROP" && r.always() {
			a.about("kubeproxy.firewall.bare-drop", "filter", c, r, nil, "this DROP has no match left: the node drops everything that reaches KUBE-FIREWALL")
			return
		}
		localnet = localnet || r.target == "DROP" && strings.HasPrefix(r.dst, "127.") && r.has(notSrc|condState)
	}
	if !localnet && a.save.family == familyIPv4 && a.version.Min >= 19 {
		a.about("kubeproxy.firewall.localnet", "filter", c, nil, nil, "KUBE-FIREWALL has no rule for 127.0.0.0/8")
	}
}

// judgeHealthPorts: from 1.21 table filter accepts health checks of load balancers, whatever else is dropped.
func (a *audit) judgeHealthPorts() {
	c := a.filter.chain("KUBE-NODEPORTS")
	if c == nil {
		return
	}
	for r := c.first; r != nil; r = r.next {
		if !strings.HasSuffix(r.comment, " health check node port") || r.target != "ACCEPT" || r.proto != "tcp" || r.flags&conds != condProto|condDport {
			a.about("kubeproxy.chain.unexpected-rule", "filter", c, r, nil, "kube-proxy writes no such rule into KUBE-NODEPORTS of table filter")
			return
		}
	}
}

// judgeSourceRanges: invariant 9. From 1.25 what KUBE-FW-x does not let through, KUBE-PROXY-FIREWALL drops.
func (a *audit) judgeSourceRanges(n *node) {
	if n.fw == nil || n.fw.blamed || a.version.Min < 25 || a.filter == nil {
		return
	}
	if n.fw.n == 0 {
		a.about("kubeproxy.external.empty", "nat", n.fw, nil, n, "%s has no rules: nobody reaches the load balancer address", n.fw.name)
		return
	}
	for r := n.fw.first; r != nil; r = r.next {
		if r.target != "" && r.jump != n.ext {
			a.about("kubeproxy.external.dispatch", "nat", n.fw, r, n, "%s leads to %s, not to the Service's own chain", n.fw.name, r.target)
			return
		}
	}
	if a.drops == nil {
		a.drops = map[string]bool{}
		if c := a.filter.chain("KUBE-PROXY-FIREWALL"); c != nil {
			for r := c.first; r != nil; r = r.next {
				a.drops[r.comment] = a.drops[r.comment] || r.target == "DROP"
			}
		}
	}
	if a.drops[n.name+" traffic not accepted by "+n.fw.name] {
		return
	}
	a.about("kubeproxy.firewall.unpaired", "nat", n.fw, nil, n, "KUBE-PROXY-FIREWALL has no DROP for what %s does not accept: loadBalancerSourceRanges is not enforced", n.fw.name)
}

// judgeProxyFirewall is the other half of invariant 9: a drop whose KUBE-FW chain is gone blocks everybody.
func (a *audit) judgeProxyFirewall() {
	c := a.filter.chain("KUBE-PROXY-FIREWALL")
	if c == nil || a.nat == nil {
		return
	}
	for r := c.first; r != nil; r = r.next {
		name, fw, ok := strings.Cut(r.comment, " traffic not accepted by ")
		if !ok || a.nat.chain(fw) != nil {
			continue
		}
		n := a.byName[nodeKey{name, r.proto}]
		a.about("kubeproxy.firewall.unpaired", "filter", c, r, n, "%s is gone, yet its drop remains: nobody reaches the load balancer address", fw)
	}
}
