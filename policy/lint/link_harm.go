package lint

import (
	"strings"

	"nodegate/policy"
	"nodegate/policy/kernels"
)

// number returns the value of a setting, or false if the link does not set it to a number.
func number(l policy.Link, kind policy.LinkKind, name string) (int64, bool) {
	for _, s := range l.Settings {
		if s.Kind == kind && s.Name == name {
			return policy.ParseNumber(s.Value)
		}
	}
	return 0, false
}

// leastMTU is what IPv6 needs (RFC 8200, section 5): the kernel removes it from a link with less (addrconf_notify).
const leastMTU = 1280

// checkSettings reports settings of one link that no driver accepts, and an MTU that loses packets.
func (r *reading) checkSettings(l policy.Link, b policy.Stanza) {
	if mtu, set := number(l, policy.MTU, ""); set && mtu >= 68 && mtu < leastMTU {
		r.warnf(b.At("mtu"), "Harmful value", "With an MTU of %d the kernel removes IPv6 from the link: it needs %d.", mtu, leastMTU)
	}
	if mtu, _ := number(l, policy.MTU, ""); mtu > 1500 && l.Match == (policy.Match{DefaultRoute: true}) {
		r.warnf(b.At("mtu"), "Harmful value", "Every uplink gets an MTU of %d, also where the network carries less: large packets are lost. "+
			"Add the name or the driver to match.", mtu)
	}
	combined, set := number(l, policy.Channels, "combined")
	rx, _ := number(l, policy.Channels, "rx")
	tx, _ := number(l, policy.Channels, "tx")
	if set && combined == 0 && (rx == 0 || tx == 0) { // ethtool_set_channels of net/ethtool/ioctl.c
		r.errorf(b.At("channels"), "Refused by the kernel", "The kernel keeps at least one channel for each direction: set combined to 1 or "+
			"more, or rx and tx as well, or remove channels to let the driver choose.")
	}
}

// checkTunnel reports a tunnel whose packets exceed the uplink's MTU.
func (r *reading) checkTunnel(tunnel, uplink policy.Link) {
	inner, set := number(tunnel, policy.MTU, "")
	outer, also := number(uplink, policy.MTU, "")
	if !set || !also || !isUplink(uplink.Match) {
		return
	}
	for _, rule := range kernels.Rules("overhead") {
		adds := rule.Number(2)
		if m := tunnel.Match; m.Kind != rule.Words[0] && !strings.HasPrefix(m.Name, rule.Words[1]) {
			continue
		}
		if inner+adds > outer {
			r.warnf(tunnel.Range, "Harmful value", "mtu is %d here and %d of link %q at %s, but a tunnel of kind %s adds %d bytes to each packet: "+
				"large packets of Pods are lost or fragmented. Write at most %d.", inner, outer, uplink.Name, policy.Place(uplink.Range), rule.Words[0],
				adds, outer-adds)
		}
		return
	}
}
