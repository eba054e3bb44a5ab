package lint

import (
	"nodegate/policy"
	"nodegate/policy/kernels"
	"slices"
	"strings"
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

// checkSettings reports settings of one link that no driver accepts, and a setting that another one disables.
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
	for _, way := range []string{"rx", "tx"} {
		r.checkRing(l, b, way)
		for _, s := range l.Of(policy.Coalesce) {
			fixed := s.Name == way+"-usecs" || s.Name == way+"-frames"
			if fixed && slices.ContainsFunc(l.Settings, func(o policy.LinkSetting) bool { return o.Name == "adaptive-"+way && o.Value == "on" }) {
				r.warnf(b.At("coalesce"), "No effect", "With adaptive-%s = true the driver chooses %s itself: a fixed value has no effect, or does "+
					"not last. Write adaptive-%[1]s = false, or remove %s.", way, s.Name, s.Name)
			}
		}
	}
	r.checkFeatures(l, b)
}

// checkRing reports a ring that is longer than the driver's, or empty.
func (r *reading) checkRing(l policy.Link, b policy.Stanza, way string) {
	n, set := number(l, policy.Ring, way)
	if !set {
		return
	}
	for _, rule := range kernels.Rules("ring") {
		if driver := rule.Words[0]; driver != "*" && driver != l.Match.Driver {
			continue
		}
		most := rule.Number(map[string]int{"rx": 1, "tx": 2}[way])
		device := "no driver has"
		if rule.Words[0] != "*" {
			device = "the driver " + rule.Words[0] + " does not have"
		}
		if n < 1 || n > most {
			r.warnf(b.At("ring"), "Refused by the kernel", "ring.%s = %d: %s a ring of that length; accepted: up to %d. Write %s = \"max\" for the "+
				"device's own maximum.", way, n, device, most, way)
		}
		return
	}
}

// checkFeatures reports an offload that the kernel drops because another one is off, and one that merges packets to forward.
func (r *reading) checkFeatures(l policy.Link, b policy.Stanza) {
	has := func(feature, value string) *policy.LinkSetting {
		i := slices.IndexFunc(l.Settings, func(s policy.LinkSetting) bool { return s.Value == value && slices.Contains(s.Features, feature) })
		if i < 0 {
			return nil
		}
		return &l.Settings[i]
	}
	for _, rule := range kernels.Rules("feature") {
		if on, off := has(rule.Words[0], "on"), has(rule.Words[1], "off"); on != nil && off != nil {
			r.warnf(b.At("offload"), "No effect", "The kernel switches %s off while %s is off. Correct one of the two.", on.Name, off.Name)
		}
	}
	if on := has("rx-lro", "on"); on != nil { // Documentation/networking/segmentation-offloads.rst, dev_disable_lro
		r.warnf(b.At("offload"), "Harmful value", "%s merges packets so that they cannot be forwarded, and the kernel switches it off where it "+
			"forwards. Use gro.", on.Name)
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
