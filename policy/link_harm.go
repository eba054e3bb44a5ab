package policy

import (
	"slices"
	"strconv"
	"strings"

	"nodegate/policy/kernels"
)

// number returns the value of a setting, or false if the link does not set it to a number.
func (l Link) number(kind LinkKind, name string) (int64, bool) {
	for _, s := range l.Settings {
		if s.Kind == kind && s.Name == name {
			return parseNumber(s.Value)
		}
	}
	return 0, false
}

// leastMTU is what IPv6 needs (RFC 8200, section 5): the kernel removes it from a link with less (addrconf_notify).
const leastMTU = 1280

// checkSettings reports settings of one link that no driver accepts, and a setting that another one disables.
func (r *reader) checkSettings(l Link, b block) {
	if mtu, set := l.number(MTU, ""); set && mtu >= 68 && mtu < leastMTU {
		r.warnf(b.at("mtu"), "Harmful value", "With an MTU of %d the kernel removes IPv6 from the link: it needs %d.", mtu, leastMTU)
	}
	if mtu, _ := l.number(MTU, ""); mtu > 1500 && l.Match == (Match{DefaultRoute: true}) {
		r.warnf(b.at("mtu"), "Harmful value", "Every uplink gets an MTU of %d, also where the network carries less: large packets are lost. "+
			"Add the name or the driver to match.", mtu)
	}
	combined, set := l.number(Channels, "combined")
	rx, _ := l.number(Channels, "rx")
	tx, _ := l.number(Channels, "tx")
	if set && combined == 0 && (rx == 0 || tx == 0) { // ethtool_set_channels of net/ethtool/ioctl.c
		r.errorf(b.at("channels"), "Refused by the kernel", "The kernel keeps at least one channel for each direction: set combined to 1 or "+
			"more, or rx and tx as well, or remove channels to let the driver choose.")
	}
	for _, way := range []string{"rx", "tx"} {
		r.checkRing(l, b, way)
		for _, s := range l.Of(Coalesce) {
			fixed := s.Name == way+"-usecs" || s.Name == way+"-frames"
			if fixed && slices.ContainsFunc(l.Settings, func(o LinkSetting) bool { return o.Name == "adaptive-"+way && o.Value == "on" }) {
				r.warnf(b.at("coalesce"), "No effect", "With adaptive-%s = true the driver chooses %s itself: a fixed value has no effect, or does "+
					"not last. Write adaptive-%[1]s = false, or remove %s.", way, s.Name, s.Name)
			}
		}
	}
	r.checkFeatures(l, b)
}

// checkRing reports a ring that is longer than the driver's, or empty.
func (r *reader) checkRing(l Link, b block, way string) {
	n, set := l.number(Ring, way)
	if !set {
		return
	}
	for _, rule := range kernels.Rules("ring") {
		if driver := rule.Words[0]; driver != "*" && driver != l.Match.Driver {
			continue
		}
		most, _ := strconv.ParseInt(rule.Words[map[string]int{"rx": 1, "tx": 2}[way]], 10, 64)
		device := "no driver has"
		if rule.Words[0] != "*" {
			device = "the driver " + rule.Words[0] + " does not have"
		}
		if n < 1 || n > most {
			r.warnf(b.at("ring"), "Refused by the kernel", "ring.%s = %d: %s a ring of that length; accepted: up to %d. Write %s = \"max\" for the "+
				"device's own maximum.", way, n, device, most, way)
		}
		return
	}
}

// checkFeatures reports an offload that the kernel drops because another one is off, and one that merges packets to forward.
func (r *reader) checkFeatures(l Link, b block) {
	has := func(feature, value string) *LinkSetting {
		i := slices.IndexFunc(l.Settings, func(s LinkSetting) bool { return s.Value == value && slices.Contains(s.Features, feature) })
		if i < 0 {
			return nil
		}
		return &l.Settings[i]
	}
	for _, rule := range kernels.Rules("feature") {
		if on, off := has(rule.Words[0], "on"), has(rule.Words[1], "off"); on != nil && off != nil {
			r.warnf(b.at("offload"), "No effect", "The kernel switches %s off while %s is off. Correct one of the two.", on.Name, off.Name)
		}
	}
	if on := has("rx-lro", "on"); on != nil { // Documentation/networking/segmentation-offloads.rst, dev_disable_lro
		r.warnf(b.at("offload"), "Harmful value", "%s merges packets so that they cannot be forwarded, and the kernel switches it off where it "+
			"forwards. Use gro.", on.Name)
	}
}

// checkTunnel reports a tunnel whose packets exceed the uplink's MTU.
func (r *reader) checkTunnel(tunnel, uplink Link) {
	inner, set := tunnel.number(MTU, "")
	outer, also := uplink.number(MTU, "")
	if !set || !also || !uplink.Match.isUplink() {
		return
	}
	for _, rule := range kernels.Rules("overhead") {
		adds, _ := strconv.ParseInt(rule.Words[2], 10, 64)
		if m := tunnel.Match; m.Kind != rule.Words[0] && !strings.HasPrefix(m.Name, rule.Words[1]) {
			continue
		}
		if inner+adds > outer {
			r.warnf(tunnel.Range, "Harmful value", "mtu is %d here and %d of link %q at %s, but a tunnel of kind %s adds %d bytes to each packet: "+
				"large packets of Pods are lost or fragmented. Write at most %d.", inner, outer, uplink.Name, place(uplink.Range), rule.Words[0],
				adds, outer-adds)
		}
		return
	}
}
