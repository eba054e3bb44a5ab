package replica

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// Pods returns at most so many Pods of this node: those that have one of the known addresses, then those in the neighbour table. The
// addresses of one Pod share its hardware address.
func (c *Capture) Pods(known []netip.Addr, most int) (list []Pod) {
	mac := map[netip.Addr]string{}
	for _, n := range c.Neighbours {
		if n.Bridge || !c.leadsToPods(n.Link) || n.Address.IsLinkLocalUnicast() {
			continue
		}
		if m := c.route(n.Address, func([]byte, int) bool { return true }); m != nil && linkOfRoute(m) == n.Link { // not only an ARP request
			mac[n.Address] = n.MAC.String()
		}
	}
	of := map[string]int{}
	add := func(a netip.Addr) {
		at, same := of[mac[a]]
		switch {
		case slices.ContainsFunc(list, func(p Pod) bool { return slices.Contains(p.Addresses, a) }) || slices.Contains(c.Own(), a):
		case same && mac[a] != "" && !slices.ContainsFunc(list[at].Addresses, func(b netip.Addr) bool { return b.Is4() == a.Is4() }):
			list[at].Addresses = append(list[at].Addresses, a)
		case len(list) < most:
			of[mac[a]] = len(list)
			list = append(list, Pod{Addresses: []netip.Addr{a}})
		}
	}
	for _, a := range known {
		if m := c.route(a, func([]byte, int) bool { return true }); m != nil && m[1] != 0 && c.leadsToPods(linkOfRoute(m)) &&
			len(attributes(m[unix.SizeofRtMsg:], unix.RTA_GATEWAY)[unix.RTA_GATEWAY]) == 0 {
			add(a)
		}
	}
	for _, n := range c.Neighbours {
		if mac[n.Address] != "" {
			add(n.Address)
		}
	}
	return list
}

// Stray returns the faults of links which keep all packets from Pods, whatever rules and routes do: a macvlan that takes all packets of an
// uplink, and faults of the bridges that CNI plugins make, in the families of Services. A plugin gives the bridge the address of the Pods'
// gateway.
func (c *Capture) Stray(serves func(is6 bool) bool) (list []string) {
	for _, l := range c.Links {
		const mode, passthru = 1, 8 // IFLA_MACVLAN_MODE, MACVLAN_MODE_PASSTHRU
		if l.Kind != "macvlan" && l.Kind != "macvtap" || intOf(attributes(l.Data, mode)[mode]) != passthru {
			continue
		}
		if lower := c.link(l.Lower); lower != nil && c.isUplink(lower) && bytes.Equal(lower.MAC, l.MAC) { // not of another namespace
			list = append(list, fmt.Sprintf("%s gives all packets to %s, a %s in passthru mode", lower.Name, l.Name, l.Kind))
		}
	}
	if slices.ContainsFunc(c.Links, func(l Link) bool { return l.Kind == "veth" && l.Master == 0 && c.leadsToPods(l.Index) }) {
		return list // Pods have links without a bridge, and the bridge may be that of a second network
	}
	for _, l := range c.Links {
		switch {
		case !slices.Contains([]string{"cni0", "cbr0", "kube-bridge"}, l.Name) || !c.leadsToPods(l.Index):
		case !l.Up:
			list = append(list, l.Name+" is down")
		case serves(true) && c.Sysctls["net/ipv6/conf/"+l.Name+"/disable_ipv6"] == "1":
			list = append(list, "net.ipv6.conf."+l.Name+".disable_ipv6 = 1 keeps IPv6 from its Pods")
		case serves(false) && !slices.ContainsFunc(c.addressesOf(l.Index), func(a address) bool { return a.prefix.Addr().Is4() }):
			list = append(list, l.Name+" has no IPv4 address, which is the gateway of its Pods")
		}
	}
	return list
}

// LeavesBy returns the uplink by which the route to an address leaves, or "".
func (c *Capture) LeavesBy(a netip.Addr) string {
	if m := c.route(a, func([]byte, int) bool { return true }); m != nil {
		if l := c.link(linkOfRoute(m)); l != nil && c.isUplink(l) {
			return l.Name
		}
	}
	return ""
}

// leadsToPods reports whether a link is a veth without a gateway behind it, or a bridge of veths, and no uplink.
func (c *Capture) leadsToPods(index int) bool {
	l := c.link(index)
	if l == nil || l.Kind != "veth" && l.Kind != "bridge" || c.isUplink(l) || l.Kind == "veth" && len(c.gateways(index)) > 0 {
		return false
	}
	veth := func(port Link) bool { return port.Master == index && port.Kind == "veth" }
	foreign := func(port Link) bool {
		return port.Master == index && port.Kind != "veth" && port.Kind != "vxlan" && port.Kind != "tun"
	}
	return l.Kind == "veth" || slices.ContainsFunc(c.Links, veth) && !slices.ContainsFunc(c.Links, foreign)
}

// Uplink returns the node's own address on a link with a default route, of the table main if that has one.
func (c *Capture) Uplink(is6 bool) (own netip.Addr, ok bool) {
	unspecified := map[bool]netip.Addr{false: netip.IPv4Unspecified(), true: netip.IPv6Unspecified()}[is6]
	main := c.route(unspecified, func(m []byte, _ int) bool { return m[1] == 0 && m[7] == unix.RTN_UNICAST })
	for _, m := range append([][]byte{main}, c.Routes...) {
		if m == nil || m[1] != 0 || (m[0] == unix.AF_INET6) != is6 || m[7] != unix.RTN_UNICAST {
			continue
		}
		for _, a := range c.addressesOf(linkOfRoute(m)) {
			if ip := a.prefix.Addr(); ip.Is6() == is6 && !ip.IsLinkLocalUnicast() {
				return ip, true
			}
		}
	}
	return own, false
}

// Overlays returns the UDP ports of the node's VXLAN links, and the other nodes to which they lead.
func (c *Capture) Overlays() (ports []uint16, nodes []netip.Addr) {
	for _, l := range c.Links {
		const port = 15 // IFLA_VXLAN_PORT
		if b := attributes(l.Data, port)[port]; l.Kind != "vxlan" || len(b) != 2 {
			continue
		} else if n := binary.BigEndian.Uint16(b); !slices.Contains(ports, n) {
			ports = append(ports, n)
		}
		for _, n := range c.Neighbours {
			if n.Bridge && n.Link == l.Index && n.Address.IsValid() && !n.Address.IsUnspecified() {
				nodes = append(nodes, n.Address)
			}
		}
	}
	return ports, nodes
}
