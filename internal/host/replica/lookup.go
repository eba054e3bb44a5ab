package replica

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/wire"
)

func (c *Capture) link(index int) *Link {
	for i := range c.Links {
		if c.Links[i].Index == index {
			return &c.Links[i]
		}
	}
	return nil
}

// linkOf returns the free link that leads to a Pod, and the Pod's hardware address if it is known.
func (c *Capture) linkOf(p Pod, used map[int]bool) (*Link, net.HardwareAddr) {
	free := func(l *Link) bool {
		return l != nil && l.Name != "lo" && !used[l.Index] && !l.keepsKind() && !c.isUplink(l)
	}
	var bridge *Link
	for _, n := range c.Neighbours {
		if !slices.Contains(p.Addresses, n.Address) {
			continue
		}
		l := c.link(n.Link)
		if free(l) {
			return l, n.MAC
		}
		bridge = l
		for _, port := range c.Neighbours {
			if port.Bridge && bytes.Equal(port.MAC, n.MAC) && !port.Permanent && free(c.link(port.Link)) {
				return c.link(port.Link), n.MAC
			}
		}
	}
	for _, m := range c.Routes { // to this Pod alone
		a := attributes(m[unix.SizeofRtMsg:], unix.RTA_OIF)
		to, _ := netip.AddrFromSlice(a[unix.RTA_DST])
		if l := c.link(intOf(a[unix.RTA_OIF])); int(m[1]) == to.BitLen() && slices.Contains(p.Addresses, to) && free(l) {
			return l, nil
		}
	}
	for _, want := range []func(*Link) bool{
		func(l *Link) bool { return bridge != nil && l.Master == bridge.Index },
		func(l *Link) bool {
			return slices.ContainsFunc(p.Addresses, func(a netip.Addr) bool { return c.hasRange(l.Master, a) })
		},
		func(l *Link) bool { return l.Kind == "veth" },
	} {
		for i := range c.Links {
			if l := &c.Links[i]; free(l) && want(l) {
				return l, nil
			}
		}
	}
	return nil, nil
}

// isUplink reports whether a default route leaves by a link, or by a bridge that has it as a port, and not only veths.
func (c *Capture) isUplink(l *Link) bool {
	return l.Kind != "veth" && l.Master != 0 || slices.ContainsFunc(c.Routes, func(m []byte) bool {
		return m[1] == 0 && intOf(attributes(m[unix.SizeofRtMsg:], unix.RTA_OIF)[unix.RTA_OIF]) == l.Index
	})
}

// address is an address of a link of the node.
type address struct {
	link   int
	prefix netip.Prefix
	scope  byte
}

func (c *Capture) addressesOf(link int) (list []address) {
	for _, m := range c.Addresses {
		a := attributes(m[unix.SizeofIfAddrmsg:], unix.IFA_LOCAL)
		local := a[unix.IFA_LOCAL]
		if local == nil {
			local = a[unix.IFA_ADDRESS]
		}
		if ip, ok := netip.AddrFromSlice(local); ok && (link == 0 || intOf(m[4:8]) == link) {
			list = append(list, address{intOf(m[4:8]), netip.PrefixFrom(ip, int(m[1])), m[3]})
		}
	}
	return list
}

// Own returns the node's own addresses.
func (c *Capture) Own() (list []netip.Addr) {
	for _, a := range c.addressesOf(0) {
		list = append(list, a.prefix.Addr())
	}
	return list
}

func (c *Capture) hasRange(link int, a netip.Addr) bool {
	return link != 0 && slices.ContainsFunc(c.addressesOf(link), func(own address) bool { return own.prefix.Contains(a) })
}

// route returns the most specific route to an address in the table main, of those that suit and whose link has a carrier.
func (c *Capture) route(a netip.Addr, suits func(m []byte, link int) bool) (best []byte) {
	for _, m := range c.Routes {
		attrs := attributes(m[unix.SizeofRtMsg:], unix.RTA_TABLE)
		to, is := netip.AddrFromSlice(attrs[unix.RTA_DST])
		dead := binary.NativeEndian.Uint32(m[8:])&(unix.RTNH_F_DEAD|unix.RTNH_F_LINKDOWN) != 0
		if !dead && (best == nil || m[1] > best[1]) && m[0] == family(a) && routeTable(m, attrs) == "254" && suits(m, linkOfRoute(m)) &&
			(m[1] == 0 || is && netip.PrefixFrom(to, int(m[1])).Contains(a)) {
			best = m
		}
	}
	return best
}

func linkOfRoute(m []byte) int {
	a := attributes(m[unix.SizeofRtMsg:], unix.RTA_TABLE)
	if hops := a[unix.RTA_MULTIPATH]; len(hops) >= unix.SizeofRtNexthop {
		return intOf(hops[4:8])
	}
	return intOf(a[unix.RTA_OIF])
}

// nextHop returns the hardware address of a gateway behind a link, or behind this port of a bridge. All machines there have it in the copy.
func (c *Capture) nextHop(l *Link) net.HardwareAddr {
	gateways := append(c.gateways(l.Index), c.gateways(l.Master)...)
	for _, n := range c.Neighbours {
		if n.Bridge || n.Link != l.Index && n.Link != l.Master || !slices.Contains(gateways, n.Address) {
			continue
		}
		if n.Link == l.Index || slices.ContainsFunc(c.Neighbours, func(port Neighbour) bool {
			return port.Bridge && port.Link == l.Index && bytes.Equal(port.MAC, n.MAC)
		}) {
			return n.MAC
		}
	}
	return nil
}

// gateways returns the gateways behind a link.
func (c *Capture) gateways(link int) (list []netip.Addr) {
	add := func(b []byte) {
		if a, ok := netip.AddrFromSlice(b); ok && !slices.Contains(list, a) {
			list = append(list, a)
		}
	}
	for _, m := range c.Routes {
		a := attributes(m[unix.SizeofRtMsg:], unix.RTA_MULTIPATH)
		if intOf(a[unix.RTA_OIF]) == link {
			add(a[unix.RTA_GATEWAY])
		}
		for hops := a[unix.RTA_MULTIPATH]; len(hops) >= unix.SizeofRtNexthop; {
			size := int(binary.NativeEndian.Uint16(hops))
			if size < unix.SizeofRtNexthop || size > len(hops) {
				break
			}
			if intOf(hops[4:8]) == link {
				add(attributes(hops[unix.SizeofRtNexthop:size], unix.RTA_GATEWAY)[unix.RTA_GATEWAY])
			}
			hops = hops[min(wire.Align(size), len(hops)):]
		}
	}
	for _, m := range c.Nexthops {
		if a := attributes(m[sizeofNhmsg:], 6); intOf(a[5]) == link { // NHA_OIF, NHA_GATEWAY
			add(a[6])
		}
	}
	return list
}
