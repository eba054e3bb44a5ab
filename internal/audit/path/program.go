package path

import "nodegate/internal/ruleset"

func program(save *ruleset.Save) string {
	name := "iptables"
	if save.Family == ruleset.IPv6 {
		name = "ip6tables"
	}
	if save.Backend != "" {
		name += "-" + save.Backend
	}
	return name
}

// entersNAT reports whether a packet consults the nat chains of a hook: only the first packet of a
// tracked connection does, until a rule has translated it.
func (p *Packet) entersNAT(hook string) bool {
	if p.State != StateNew && p.State != StateRelated && p.State != "" {
		return false
	}
	if natPriority(hook) == natDestination {
		return !p.dnat
	}
	return !p.snat
}
