package proxy

import (
	"slices"

	"nodegate/internal/ruleset"
)

// judgeNoLocal judges a Service with externalTrafficPolicy Local and without endpoints on this node. For each external
// address and for the node port there are two rules: nat sends the connections of Pods and of the node to endpoints, and
// KUBE-EXTERNAL-SERVICES drops the others (syncProxyRules of pkg/proxy/iptables, from 1.25).
func (a *audit) judgeNoLocal(n *node, at external) {
	if !at.local() || at["toLocal"] > 0 || a.version.Min < 25 || a.filter == nil || a.isBroken(n) || a.opts.unled() {
		return
	}
	c := a.chain(a.filter, "KUBE-EXTERNAL-SERVICES")
	if c == nil || c.blamed {
		return
	}
	served := n.nodePort
	if served == nil {
		served = n.loopback
	}
	switch {
	case served != nil && n.blockedPort == nil:
		a.addFinding("kubeproxy.service.reject", "filter", c, nil, n,
			"KUBE-EXTERNAL-SERVICES does not drop connections to node port %s of %s, which has no endpoint on this node", served.Port, n.name)
	case n.blockedPort != nil && served == nil && !a.portsDamaged:
		a.addFinding("kubeproxy.nodeports.missing", "filter", c, n.blockedPort, n,
			"KUBE-NODEPORTS has no rule for node port %s of %s: Pods and the node itself cannot use it", n.blockedPort.Port, n.name)
	case n.blockedPort != nil && served != nil && n.blockedPort.Port != served.Port:
		a.addFinding("kubeproxy.service.address", "filter", c, n.blockedPort, n, "the node port is %s here, but %s in line %d",
			n.blockedPort.Port, served.Port, served.Line)
	default:
		a.judgeNoLocalAddresses(n, c)
	}
	c.blamed = false // it also serves other Services
}

func (a *audit) judgeNoLocalAddresses(n *node, c *chain) {
	lacks := func(list []*ruleset.Rule, address string) bool {
		return !slices.ContainsFunc(list, func(r *ruleset.Rule) bool { return r.Destination == address })
	}
	for _, r := range n.outside {
		if lacks(n.blocked, r.Destination) {
			a.addFinding("kubeproxy.service.reject", "filter", c, nil, n, "KUBE-EXTERNAL-SERVICES does not drop connections to %s of %s, "+
				"which has no endpoint on this node", trimCIDR(r.Destination), n.name)
			return
		}
	}
	for _, r := range n.blocked {
		if lacks(n.outside, r.Destination) {
			a.addFinding("kubeproxy.service.address", "filter", c, r, n,
				"nat KUBE-SERVICES has no rule for %s of %s: Pods and the node itself cannot use it", trimCIDR(r.Destination), n.name)
			return
		}
	}
}

// judgeExternalPorts checks that the rules for a Service's external addresses have the port of its ClusterIP.
func (a *audit) judgeExternalPorts(n *node) {
	for table, rules := range map[string][]*ruleset.Rule{"nat": n.outside, "filter": n.blocked} {
		for _, r := range rules {
			if !a.isBroken(n) && n.out.Port != 0 && atoi(r.Port) != n.out.Port {
				a.addFinding("kubeproxy.service.address", table, nil, r, n, "the port of %s is %d at its ClusterIP, but %s here",
					n.name, n.out.Port, r.Port)
			}
		}
	}
}
