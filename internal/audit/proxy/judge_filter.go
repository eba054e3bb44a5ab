package proxy

import (
	"strings"

	"nodegate/internal/ruleset"
)

// judgeForward checks that INVALID packets are dropped before others are accepted
// (kubernetes#74840), and that marked and established packets are accepted.
func (a *audit) judgeForward() {
	c := a.chain(a.filter, "KUBE-FORWARD")
	if c == nil || c.blamed {
		return
	}
	var marked, established *ruleset.Rule
	for i := range c.Rules {
		r := &c.Rules[i]
		switch {
		case dropsInvalid(r):
		case r.Target == "ACCEPT" && r.Has(ruleset.ByMark):
			marked = r
		case r.Target == "ACCEPT" && r.Has(ruleset.ByState):
			established = r
		default:
			a.addFinding("kubeproxy.chain.unexpected-rule", "filter", c, r, nil, "kube-proxy does not write this rule into KUBE-FORWARD")
			return
		}
	}
	const want = "kubeproxy.forward.accept"
	switch drop, accept := InvalidDrop(a.filter); {
	case drop == nil:
		a.judgeNoDrop(c)
	case accept != nil:
		a.addFinding("kubeproxy.forward.invalid-order", "filter", c, drop, nil,
			"the ACCEPT in line %d comes first and accepts INVALID packets", accept.Line)
	}
	switch {
	case marked == nil:
		a.addFinding(want, "filter", c, nil, nil, "KUBE-FORWARD does not accept marked packets: with policy DROP, node port traffic fails")
	case established == nil && a.version.Min >= 22:
		a.addFinding(want, "filter", c, nil, nil, "KUBE-FORWARD does not accept RELATED,ESTABLISHED: with policy DROP, replies are lost")
	default:
		if text := marked.Extra().Mark; a.mark != 0 {
			if mark, _, ok := markMask(text); !ok || mark != a.mark {
				a.addFinding("kubeproxy.masquerade.mismatch", "filter", c, marked, nil, "KUBE-MARK-MASQ sets %#x, this rule uses %s", a.mark, text)
			}
		}
	}
}

// judgeNoDrop: from 1.29 kube-proxy omits the rule if be_liberal was not 0 when it started (kubernetes#120412).
func (a *audit) judgeNoDrop(c *chain) {
	switch {
	case a.opts.BeLiberal != nil && *a.opts.BeLiberal:
	case a.version.Max < 29 || a.opts.BeLiberal != nil:
		a.addFinding("kubeproxy.forward.invalid-drop", "filter", c, nil, nil,
			"KUBE-FORWARD does not drop INVALID packets, and nf_conntrack_tcp_be_liberal is 0")
	default:
		a.addFinding("kubeproxy.forward.be-liberal", "filter", c, nil, nil,
			"KUBE-FORWARD does not drop INVALID packets; from 1.29 that is correct only if nf_conntrack_tcp_be_liberal is 1, "+
				"which the rules do not show")
	}
}

// judgeFirewall judges KUBE-FIREWALL, which drops packets from outside to 127.0.0.0/8 and, until
// 1.27, marked packets. A DROP rule that has lost its match drops all packets (kubernetes#112477).
// kube-proxy creates the chain, but the 127.0.0.0/8 rule only if it also sets route_localnet (--iptables-localhost-nodeports; NewProxier
// and syncProxyRules of pkg/proxy/iptables). kubelet may be configured to create neither (makeIPTablesUtilChains). Without route_localnet
// the rule is unnecessary.
func (a *audit) judgeFirewall() {
	c := a.chain(a.filter, "KUBE-FIREWALL")
	if c == nil || c.blamed {
		return
	}
	if bare := BareDrops(a.filter); len(bare) > 0 {
		a.addFinding("kubeproxy.firewall.bare-drop", "filter", c, bare[0], nil,
			"this DROP rule has lost its match: the node drops every packet that reaches KUBE-FIREWALL")
	} else if martianDrop(a.filter) == nil && a.save.Family == ruleset.IPv4 && a.version.Min >= 19 &&
		(a.opts.RouteLocalnet == nil || a.opts.RouteLocalnet()) {
		a.addFinding("kubeproxy.firewall.localnet", "filter", c, nil, nil, "KUBE-FIREWALL has no rule for 127.0.0.0/8")
	}
}

// judgeHealthPorts: from 1.21 table filter accepts the health checks of load balancers before other rules can drop them.
func (a *audit) judgeHealthPorts() {
	c := a.chain(a.filter, "KUBE-NODEPORTS")
	if c == nil {
		return
	}
	for i := range c.Rules {
		r := &c.Rules[i]
		if !strings.HasSuffix(r.Comment, " health check node port") || r.Target != "ACCEPT" || r.Protocol != "tcp" ||
			r.Conditions() != ruleset.ByProtocol|ruleset.ByPort {
			a.addFinding("kubeproxy.chain.unexpected-rule", "filter", c, r, nil,
				"kube-proxy does not write this rule into KUBE-NODEPORTS of table filter")
			return
		}
		a.healthPorts[strings.TrimSuffix(r.Comment, " health check node port")] = atoi(r.Port)
	}
}

// judgeSourceRanges checks invariant 9: from 1.25, KUBE-PROXY-FIREWALL drops the packets that a KUBE-FW chain does not accept.
func (a *audit) judgeSourceRanges(n *node) {
	if n.fw == nil || n.fw.blamed || a.version.Min < 25 || a.filter == nil {
		return
	}
	if len(n.fw.Rules) == 0 {
		a.addFinding("kubeproxy.external.empty", "nat", n.fw, nil, n, "%s has no rules: the load balancer address is unreachable", n.fw.Name)
		return
	}
	for i := range n.fw.Rules {
		r := &n.fw.Rules[i]
		switch {
		case r.Target == "": // the target is the drop
		case a.target(r) != n.ext:
			a.addFinding("kubeproxy.external.dispatch", "nat", n.fw, r, n, "%s jumps to %s, not to the Service's own chain", n.fw.Name, r.Target)
			return
		case r.Always(): // older versions write a range that contains all addresses
			n.out.SourceRanges = append(n.out.SourceRanges, map[string]string{ruleset.IPv4: "0.0.0.0/0", ruleset.IPv6: "::/0"}[n.out.Family])
		case r.Conditions() != ruleset.BySource || r.Has(ruleset.NotSource):
			a.addFinding("kubeproxy.chain.unexpected-rule", "nat", n.fw, r, n, "kube-proxy does not write this rule into %s", n.fw.Name)
			return
		default:
			n.out.SourceRanges = append(n.out.SourceRanges, r.Source)
		}
	}
	if a.drops == nil {
		a.drops = map[portalKey]bool{}
		for r := range a.filter.Rules("KUBE-PROXY-FIREWALL") {
			if r.Target == "DROP" {
				a.drops[portalKey{r.Destination, r.Protocol, r.Port}] = true
			}
		}
	}
	for _, r := range n.outside {
		if a.target(r) == n.fw && !a.drops[portalKey{r.Destination, r.Protocol, r.Port}] {
			a.addFinding("kubeproxy.firewall.unpaired", "nat", n.fw, nil, n, "KUBE-PROXY-FIREWALL does not drop the packets to %s, port %s, "+
				"that %s does not accept: loadBalancerSourceRanges is not enforced", trimCIDR(r.Destination), r.Port, n.fw.Name)
			return
		}
	}
}

// judgeProxyFirewall checks the other half of invariant 9: a drop without its KUBE-FW chain blocks all clients.
func (a *audit) judgeProxyFirewall() {
	c := a.chain(a.filter, "KUBE-PROXY-FIREWALL")
	if c == nil || a.nat == nil {
		return
	}
	for i := range c.Rules {
		r := &c.Rules[i]
		name, fw, ok := strings.Cut(r.Comment, " traffic not accepted by ")
		if !ok || a.chain(a.nat, fw) != nil {
			continue
		}
		n := a.byName[nodeKey{name, r.Protocol}]
		a.addFinding("kubeproxy.firewall.unpaired", "filter", c, r, n,
			"%s is missing, but its DROP rule remains: the load balancer address is unreachable", fw)
	}
}

// BareDrops returns the rules of KUBE-FIREWALL in table filter that drop every packet. No program writes such a rule: an iptables that
// does not understand the match of a rule writes the rule back without it (kubernetes#112477).
func BareDrops(filter *ruleset.Table) []*ruleset.Rule {
	var found []*ruleset.Rule
	for r := range filter.Rules("KUBE-FIREWALL") {
		if r.Target == "DROP" && r.Always() {
			found = append(found, r)
		}
	}
	return found
}

// martianDrop returns kubelet's rule of KUBE-FIREWALL in table filter that drops packets from the
// network to 127.0.0.0/8 (CVE-2020-8558), or nil.
func martianDrop(filter *ruleset.Table) *ruleset.Rule {
	const localnet = "127.0.0.0/8"
	for r := range filter.Rules("KUBE-FIREWALL") {
		notFrom := r.Source == localnet && r.Has(ruleset.NotSource)
		to := r.Destination == localnet && !r.Has(ruleset.NotDestination)
		const more = ruleset.ByState | ruleset.ByOther // "! --ctstate RELATED,ESTABLISHED,DNAT"
		if r.Target == "DROP" && notFrom && to && r.Conditions()&^more == ruleset.BySource|ruleset.ByDestination {
			return r
		}
	}
	return nil
}

// InvalidDrop returns the first rule of KUBE-FORWARD in table filter that drops INVALID packets, or
// nil, and the first ACCEPT before it, which accepts such packets.
func InvalidDrop(filter *ruleset.Table) (drop, accept *ruleset.Rule) {
	for r := range filter.Rules("KUBE-FORWARD") {
		switch {
		case dropsInvalid(r):
			return r, accept
		case r.Target == "ACCEPT" && accept == nil:
			accept = r
		}
	}
	return nil, accept
}

func dropsInvalid(r *ruleset.Rule) bool {
	return r.Target == "DROP" && r.Has(ruleset.ByState) && strings.Contains(r.Extra().States, "INVALID")
}
