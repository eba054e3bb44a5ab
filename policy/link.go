package policy

import (
	"path"
	"slices"
	"strings"
)

func (r *reader) decodeLink(b block) (Link, bool) {
	before := len(r.diags)
	l := Link{Metadata: r.decodeMetadata(b), Name: b.Name}
	if !isName(b.Name, 63, "._-") || strings.ToLower(b.Name) != b.Name {
		r.errorf(b.Range, "Not a name", "Name a link in lower-case letters, digits, dots, - and _, "+
			"for example \"vxlan\"; %q is not such a name.%s", b.Name, oddCharacter(b.Name))
	}
	l.Match = r.decodeMatch(b)
	l.Settings = r.decodeSettings(b)
	if len(r.diags) == before && !r.hasMistake(b.Body) && len(r.unknown) == 0 && l.Settings == nil {
		r.errorf(b.Range, "Empty link", "Give link %q at least one of offload, mtu, sysctl, sysfs, ring, channels or coalesce.", b.Name)
	}
	if r.catalogue != nil && l.Applies() {
		r.checkSettings(l, b)
	}
	return l, len(r.diags) == before
}

// checkLinks reports links of one name, and links that set one interface to different values.
func (p *Policy) checkLinks(r *reader) {
	for i, l := range p.Links {
		for _, o := range p.Links[:i] {
			what := l.Contradicts(o)
			switch {
			case o.Name == l.Name:
				r.errorf(l.Range, "Same name twice", "Link %q is already defined at %s. Rename one of the two.", l.Name, place(o.Range))
			case what == "" || !o.Applies() || !l.Applies():
			case o.Match == l.Match:
				r.errorf(l.Range, "Contradiction", "This link sets %s; link %q at %s matches the same interfaces "+
					"and sets it differently. Remove one of the two.", what, o.Name, place(o.Range))
			case r.catalogue != nil && !l.Match.disjoint(o.Match):
				r.errorf(l.Range, "Contradiction", "This link (%s) sets %s; link %q (%s) at %s sets it differently, and an interface may match "+
					"both. Remove one of the two, or match other interfaces.", l.Match, what, o.Name, o.Match, place(o.Range))
			}
			if r.catalogue != nil && l.Applies() && o.Applies() {
				r.checkTunnel(l, o)
				r.checkTunnel(o, l)
			}
		}
		if r.catalogue != nil && l.Applies() {
			p.checkLinkSysctls(r, l)
		}
	}
}

// checkLinkSysctls reports a link's sysctls that contradict a sysctl block for the same interface.
func (p *Policy) checkLinkSysctls(r *reader, l Link) {
	for _, a := range l.Of(LinkSysctls) {
		at := slices.Index(strings.Split(a.Name, "/"), "*")
		for _, s := range p.Sysctls {
			if about, _ := path.Match(a.Name, string(s.Key)); !about || !s.Applies() || s.Allows(a.Value) {
				continue
			}
			name := strings.Split(string(s.Key), "/")[at]
			named := Match{Name: name}
			if name == "all" || name == "default" || s.Unknown != "" || !named.covers(l.Match) && !l.Match.covers(named) {
				continue
			}
			r.errorf(l.Range, "Contradiction", "This link (%s) sets %s to %s, but %s, which may apply to the same interface, must be %s at %s. "+
				"Remove one of the two, or match other interfaces.", l.Match, a.Label(), a.Value, s.Key, s.Want(), place(s.Range))
		}
	}
}

// disjoint reports whether no interface can match both.
func (m Match) disjoint(o Match) bool {
	return m.Name != "" && o.Name != "" && !globsMeet(m.Name, o.Name) || m.Kind != "" && o.Kind != "" && m.Kind != o.Kind ||
		m.Driver != "" && o.Driver != "" && m.Driver != o.Driver || m.isVirtual() && o.isUplink() || m.isUplink() && o.isVirtual() ||
		m.isSoftware() && o.isHardware() || m.isHardware() && o.isSoftware()
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
func (m Match) isSoftware() bool { return slices.Contains(software(), m.Kind) }

// isHardware reports whether m selects links of a device's driver.
func (m Match) isHardware() bool { return m.Driver != "" && !slices.Contains(software(), m.Driver) }

// isVirtual reports whether m selects links that a CNI or kube-proxy makes. Such a link carries no default route of a node, and has
// no hardware driver.
func (m Match) isVirtual() bool {
	names := []string{"cali", "cilium_", "cni", "docker", "flannel", "genev", "kube-", "lxc", "nodelocaldns", "tunl", "veth", "vxlan"}
	return slices.Contains([]string{"dummy", "geneve", "ipip", "veth", "vxlan"}, m.Kind) ||
		slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(m.Name, n) })
}

func (m Match) isUplink() bool { return m.DefaultRoute || m.isHardware() }

// globsMeet reports whether a name can match both globs.
func globsMeet(a, b string) bool {
	one, other := globCharacters(a), globCharacters(b)
	rest := make([]bool, len(other)+1) // by the start of other: whether the rest of both can meet
	for i := len(one); i >= 0; i-- {
		next := make([]bool, len(other)+1)
		for j := len(other); j >= 0; j-- {
			star := i < len(one) && one[i] == "*"
			switch {
			case i == len(one) && j == len(other):
				next[j] = true
			case star || j < len(other) && other[j] == "*":
				next[j] = i < len(one) && rest[j] && (star || j < len(other)) || j < len(other) && next[j+1]
			case i < len(one) && j < len(other):
				next[j] = rest[j+1] && charactersMeet(one[i], other[j])
			}
		}
		rest = next
	}
	return rest[0]
}

// charactersMeet reports whether a character can match two parts of globs. It errs to true for a class that is not valid.
func charactersMeet(a, b string) bool {
	if a == b || a == "?" || b == "?" {
		return true
	}
	for c := ' '; c <= '~'; c++ {
		one, err1 := path.Match(a, string(c))
		other, err2 := path.Match(b, string(c))
		if err1 != nil || err2 != nil || one && other {
			return true
		}
	}
	return false
}

// globCharacters splits a glob into characters, classes and stars.
func globCharacters(glob string) []string {
	var all []string
	for glob != "" {
		size := 1
		switch end := strings.IndexByte(glob, ']'); {
		case glob[0] == '[' && end > 0:
			all, size = append(all, glob[:end+1]), end+1
		case glob[0] == '\\' && len(glob) > 1:
			all, size = append(all, glob[:2]), 2
		default:
			all = append(all, glob[:1])
		}
		glob = glob[size:]
	}
	return all
}

// covers reports whether every condition of m is also a condition of o. A glob that matches the text of another glob counts
// as the same condition: the two have names in common.
func (m Match) covers(o Match) bool {
	name, _ := path.Match(m.Name, o.Name)
	return (m.Name == "" || m.Name == "*" || name && o.Name != "") && (m.Kind == "" || m.Kind == o.Kind) &&
		(m.Driver == "" || m.Driver == o.Driver) && (!m.DefaultRoute || o.DefaultRoute)
}

// Contradicts returns a setting that two links set differently, or "".
func (l Link) Contradicts(o Link) string {
	for _, a := range l.Settings {
		for _, b := range o.Settings {
			if what := a.contradicts(b); what != "" {
				return what
			}
		}
	}
	return ""
}
