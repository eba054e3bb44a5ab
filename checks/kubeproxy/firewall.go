package kubeproxy

import (
	"strings"

	"nodegate/internal/ruleset"
)

// BareDrops returns the rules of KUBE-FIREWALL in table filter that drop every packet. None is written so: an iptables that does not
// understand the match of a rule writes the rule back without it (kubernetes#112477).
func BareDrops(filter *ruleset.Table) []*ruleset.Rule {
	var found []*ruleset.Rule
	for r := range filter.Rules("KUBE-FIREWALL") {
		if r.Target == "DROP" && r.Always() {
			found = append(found, r)
		}
	}
	return found
}

// MartianDrop returns the rule of KUBE-FIREWALL in table filter that drops what comes from elsewhere to 127.0.0.0/8 (CVE-2020-8558),
// nil if there is none. kubelet writes it.
func MartianDrop(filter *ruleset.Table) *ruleset.Rule {
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

// InvalidDrop returns the first rule of KUBE-FORWARD in table filter that drops packets which conntrack calls INVALID, nil if there is
// none, and the first ACCEPT before it, which lets them through.
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
