package lint

import (
	"path"
	"slices"
	"strings"

	"nodegate/policy"
)

// checkLinks reports links that may set one interface to different values.
func (r *reading) checkLinks(p *policy.Policy) {
	links := those(p.Links, policy.Link.Applies)
	for i, l := range links {
		for _, o := range links[:i] {
			if what := l.Contradicts(o); what != "" && o.Name != l.Name && o.Match != l.Match && !disjoint(l.Match, o.Match) {
				r.errorf(l.Range, "Contradiction", "This link (%s) sets %s; link %q (%s) at %s sets it differently, and an interface may match "+
					"both. Remove one of the two, or match other interfaces.", l.Match, what, o.Name, o.Match, policy.Place(o.Range))
			}
		}
	}
}

// disjoint reports whether no interface can match both.
func disjoint(m, o policy.Match) bool {
	return m.Name != "" && o.Name != "" && !globsMeet(m.Name, o.Name) || m.Kind != "" && o.Kind != "" && m.Kind != o.Kind ||
		m.Driver != "" && o.Driver != "" && m.Driver != o.Driver || isVirtual(m) && isUplink(o) || isUplink(m) && isVirtual(o) ||
		isSoftware(m) && isHardware(o) || isHardware(m) && isSoftware(o)
}

// software lists the kinds of links that the kernel makes without a device. ethtool prints most of them as the driver, the last two
// under another name.
func software() []string {
	return []string{
		"bond", "bridge", "dummy", "erspan", "geneve", "gre", "gretap", "ifb", "ip6gre", "ip6tnl", "ipip", "ipvlan", "macvlan", "macvtap",
		"openvswitch", "sit", "team", "tun", "veth", "vlan", "vrf", "vxlan", "wireguard", "802.1Q VLAN Support", "bonding",
	}
}

// isSoftware reports whether m selects links that the kernel makes without a device.
func isSoftware(m policy.Match) bool { return slices.Contains(software(), m.Kind) }

// isHardware reports whether m selects links of a device's driver.
func isHardware(m policy.Match) bool { return m.Driver != "" && !slices.Contains(software(), m.Driver) }

// isVirtual reports whether m selects links that a CNI or kube-proxy makes. Such a link carries no default route of a node, and has
// no hardware driver.
func isVirtual(m policy.Match) bool {
	names := []string{"cali", "cilium_", "cni", "docker", "flannel", "genev", "kube-", "lxc", "nodelocaldns", "tunl", "veth", "vxlan"}
	return slices.Contains([]string{"dummy", "geneve", "ipip", "veth", "vxlan"}, m.Kind) ||
		slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(m.Name, n) })
}

func isUplink(m policy.Match) bool { return m.DefaultRoute || isHardware(m) }

// globsMeet reports whether one of two globs matches the text of the other. Globs such as e*0 and *th0 have names in common too.
func globsMeet(a, b string) bool {
	one, _ := path.Match(a, b)
	other, _ := path.Match(b, a)
	return a == b || one || other
}
