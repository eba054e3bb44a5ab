package kubeproxy

import (
	"strings"

	"nodegate/internal/ruleset"
)

// BareDrops returns the rules of KUBE-FIREWALL that drop every packet. None is written so: an iptables that does not understand the
// match of a rule writes the rule back without it (kubernetes#112477).
func BareDrops(firewall *ruleset.Chain) []*ruleset.Rule {
	var found []*ruleset.Rule
	for i := range firewall.Rules {
		if r := &firewall.Rules[i]; r.Target == "DROP" && r.Always() {
			found = append(found, r)
		}
	}
	return found
}

// MartianDrop returns the rule of KUBE-FIREWALL that drops what comes from elsewhere to 127.0.0.0/8 (CVE-2020-8558), nil if there is
// none. kubelet writes it.
func MartianDrop(firewall *ruleset.Chain) *ruleset.Rule {
	const localnet = "127.0.0.0/8"
	for i := range firewall.Rules {
		r := &firewall.Rules[i]
		if r.Target == "DROP" && r.Source == localnet && r.Has(ruleset.NotSource) && r.Destination == localnet && !r.Has(ruleset.NotDestination) &&
			r.Conditions()&^(ruleset.BySource|ruleset.ByDestination|ruleset.ByState|ruleset.ByOther) == 0 {
			return r
		}
	}
	return nil
}

// InvalidDrop returns the first rule of KUBE-FORWARD that drops packets which conntrack calls INVALID, nil if there is none, and the
// first ACCEPT before it, which lets them through.
func InvalidDrop(forward *ruleset.Chain) (drop, accept *ruleset.Rule) {
	for i := range forward.Rules {
		switch r := &forward.Rules[i]; {
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
