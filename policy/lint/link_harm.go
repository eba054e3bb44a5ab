package lint

import "nodegate/policy"

// leastMTU is what IPv6 needs (RFC 8200, section 5): the kernel removes it from a link with less (addrconf_notify).
const leastMTU = 1280

// checkMTU reports an MTU that loses packets.
func (r *reading) checkMTU(l policy.Link, b policy.Stanza) {
	mtu := int64(0)
	for _, s := range l.Of(policy.MTU) {
		mtu, _ = policy.ParseNumber(s.Value)
	}
	if mtu >= 68 && mtu < leastMTU {
		r.warnf(b.At("mtu"), "Harmful value", "With an MTU of %d the kernel removes IPv6 from the link: it needs %d.", mtu, leastMTU)
	}
	if mtu > 1500 && l.Match == (policy.Match{DefaultRoute: true}) {
		r.warnf(b.At("mtu"), "Harmful value", "Every uplink gets an MTU of %d, also where the network carries less: large packets are lost. "+
			"Add the name or the driver to match.", mtu)
	}
}
