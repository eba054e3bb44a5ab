package proxy

import (
	"strings"

	"nodegate/internal/ruleset"
)

// judgeNoDrop: from 1.29 kube-proxy omits the rule if be_liberal was not 0 when it started (kubernetes#120412).
func (a *audit) judgeNoDrop(c *ruleset.Chain) {
	switch {
	case a.opts.BeLiberal != nil && *a.opts.BeLiberal:
	case a.version.Max < 29 || a.opts.BeLiberal != nil:
		a.add("kubeproxy.forward.invalid-drop", "filter", c, nil,
			"KUBE-FORWARD does not drop INVALID packets, and nf_conntrack_tcp_be_liberal is 0")
	default:
		a.add("kubeproxy.forward.be-liberal", "filter", c, nil,
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
	c := a.filter.Chain("KUBE-FIREWALL")
	if c == nil {
		return
	}
	if bare := BareDrops(a.filter); len(bare) > 0 {
		a.add("kubeproxy.firewall.bare-drop", "filter", c, bare[0],
			"this DROP rule has lost its match: the node drops every packet that reaches KUBE-FIREWALL")
	} else if martianDrop(a.filter) == nil && a.save.Family == ruleset.IPv4 && a.version.Min >= 19 &&
		(a.opts.RouteLocalnet == nil || a.opts.RouteLocalnet()) {
		a.add("kubeproxy.firewall.localnet", "filter", c, nil, "KUBE-FIREWALL has no rule for 127.0.0.0/8")
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
