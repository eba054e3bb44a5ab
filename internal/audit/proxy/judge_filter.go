package proxy

import (
	"strings"

	"nodegate/internal/ruleset"
)

// judgeNoDrop: from 1.29 kube-proxy omits the rule if be_liberal was not 0 when it started (kubernetes#120412).
func (a *audit) judgeNoDrop(c *ruleset.Chain) {
	switch {
	case a.opts.BeLiberal != nil && *a.opts.BeLiberal:
	case a.opts.BeLiberal != nil:
		a.add("kubeproxy.forward.invalid-drop", "filter", c, nil,
			"KUBE-FORWARD does not drop INVALID packets, and nf_conntrack_tcp_be_liberal is 0")
	default:
		a.add("kubeproxy.forward.be-liberal", "filter", c, nil,
			"KUBE-FORWARD does not drop INVALID packets; from 1.29 that is correct only if nf_conntrack_tcp_be_liberal is 1, "+
				"which the rules do not show")
	}
}

// judgeFirewall reports a DROP rule of KUBE-FIREWALL that has lost its match and drops all packets (kubernetes#112477).
func (a *audit) judgeFirewall() {
	if bare := BareDrops(a.filter); len(bare) > 0 {
		a.add("kubeproxy.firewall.bare-drop", "filter", a.filter.Chain("KUBE-FIREWALL"), bare[0],
			"this DROP rule has lost its match: the node drops every packet that reaches KUBE-FIREWALL")
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
