package replica

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/wire"
)

// write sets a sysctl of the thread's namespace. The kernel may lack it, or not take its own value.
func write(key, value string) error {
	err := os.WriteFile("/proc/sys/"+key, []byte(value), 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	return err
}

// setRoutes adds the addresses, routes, routing rules and fixed neighbours.
func (r *Replica) setRoutes(ctx context.Context, s *wire.Conn) error {
	c := r.Capture
	wanted := map[int]bool{}
	for _, e := range r.Ends {
		if e.link.Up && e.link.Carrier {
			wanted[r.index[e.link.Index]] = true
			wanted[r.index[r.top(e.link).Index]] = r.top(e.link).Up
		}
	}
	if err := awaitUp(ctx, s, wanted); err != nil {
		return err
	}
	for _, m := range c.Addresses {
		if link := r.index[intOf(m[4:8])]; link != 0 {
			_, err := s.Ask(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, addressMessage(m, link))
			r.refuse("address", err)
		}
	}
	r.addNexthops(s)
	if err := r.replaceRoutes(s); err != nil {
		return err
	}
	if err := r.replaceRules(s); err != nil {
		return err
	}
	for _, n := range c.Neighbours {
		l := c.link(n.Link)
		if !n.Permanent || n.Bridge || l == nil || r.index[n.Link] == 0 || l.keepsKind() && l.Kind != "bridge" {
			continue
		}
		mac := n.MAC
		for _, e := range r.Ends {
			if e.link == l {
				mac = e.MAC // one kernel stands for all machines behind the link
			}
		}
		_, err := s.Ask(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, neighbour(r.index[n.Link], n.Address, mac))
		r.refuse("neighbour "+n.Address.String(), err)
	}
	return nil
}

// addNexthops adds the next hops, and those that are groups of others after them.
func (r *Replica) addNexthops(s *wire.Conn) {
	const group, groupType, oif = 2, 3, 5 // NHA_GROUP, NHA_GROUP_TYPE, NHA_OIF
	for _, groups := range []bool{false, true} {
		for _, m := range r.Capture.Nexthops {
			if a := attributes(m[sizeofNhmsg:], oif); (a[group] != nil) != groups {
				continue
			}
			out := append(m[:sizeofNhmsg:sizeofNhmsg], filter(r.renumber(m, sizeofNhmsg, oif)[sizeofNhmsg:], func(kind int) bool {
				return !groups || kind <= groupType // it counts besides
			})...)
			out[1] = 0 // the kernel sets the scope, and flags such as that of a dead link
			binary.NativeEndian.PutUint32(out[4:], binary.NativeEndian.Uint32(out[4:])&unix.RTNH_F_ONLINK)
			_, err := s.Ask(unix.RTM_NEWNEXTHOP, unix.NLM_F_CREATE, out)
			r.refuse("next hop", err)
		}
	}
}

func addressMessage(m []byte, link int) []byte {
	const (
		keptFlags = unix.IFA_F_NOPREFIXROUTE
		ifaFlags  = 8
	)
	flags := uint32(unix.IFA_F_NODAD) | uint32(m[2])&keptFlags
	if a := attributes(m[unix.SizeofIfAddrmsg:], ifaFlags)[ifaFlags]; len(a) == 4 {
		flags |= binary.NativeEndian.Uint32(a) & keptFlags
	}
	out := bytes.Clone(m[:unix.SizeofIfAddrmsg])
	out[2] = byte(flags)
	binary.NativeEndian.PutUint32(out[4:], uint32(link))
	out = append(out, filter(m[unix.SizeofIfAddrmsg:], func(kind int) bool { return kind != unix.IFA_CACHEINFO && kind != ifaFlags })...)
	return append(out, number(ifaFlags, int(flags))...)
}

func neighbour(link int, to netip.Addr, mac []byte) []byte {
	b := make([]byte, unix.SizeofNdMsg)
	b[0] = family(to)
	binary.NativeEndian.PutUint32(b[4:], uint32(link))
	binary.NativeEndian.PutUint16(b[8:], unix.NUD_PERMANENT)
	return slices.Concat(b, attribute(unix.NDA_DST, to.AsSlice()), attribute(unix.NDA_LLADDR, mac))
}

func family(a netip.Addr) byte {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// renumber returns a message with the replica's index of a link in an attribute.
func (r *Replica) renumber(m []byte, head, kind int) []byte {
	out := bytes.Clone(m)
	each(out[head:], func(is int, value, _ []byte) {
		if is == kind && len(value) == 4 {
			if index := r.index[intOf(value)]; index != 0 {
				binary.NativeEndian.PutUint32(value, uint32(index))
			}
		}
	})
	return out
}

// routeMessage returns a route in the form that the kernel accepts: without the flags that only the kernel sets, and with either the number
// of a next hop or its link and gateway.
func (r *Replica) routeMessage(m []byte) []byte {
	const settable = unix.RTNH_F_ONLINK | unix.RTNH_F_PERVASIVE
	out := r.renumber(m, unix.SizeofRtMsg, unix.RTA_OIF)
	binary.NativeEndian.PutUint32(out[8:], binary.NativeEndian.Uint32(out[8:])&settable)
	each(out[unix.SizeofRtMsg:], func(kind int, hops, _ []byte) {
		for kind == unix.RTA_MULTIPATH && len(hops) >= unix.SizeofRtNexthop { // struct rtnexthop: its size, flags, weight, link
			hops[2] &= settable
			if index := r.index[intOf(hops[4:8])]; index != 0 {
				binary.NativeEndian.PutUint32(hops[4:], uint32(index))
			}
			size := wire.Align(int(binary.NativeEndian.Uint16(hops)))
			if size < unix.SizeofRtNexthop {
				return
			}
			hops = hops[min(size, len(hops)):]
		}
	})
	head := out[:unix.SizeofRtMsg:unix.SizeofRtMsg]
	byNumber := attributes(out[unix.SizeofRtMsg:], rtaNexthop)[rtaNexthop] != nil
	return append(head, filter(out[unix.SizeofRtMsg:], func(kind int) bool {
		said := kind == unix.RTA_OIF || kind == unix.RTA_GATEWAY || kind == unix.RTA_VIA || kind == unix.RTA_MULTIPATH
		return kind != unix.RTA_CACHEINFO && (!byNumber || !said)
	})...)
}

// replaceRoutes adds the node's routes, and removes those that the kernel added for addresses and the node lacks.
func (r *Replica) replaceRoutes(s *wire.Conn) error {
	todo := slices.Clone(r.Capture.Routes)
	var failed error
	for progress := true; progress && len(todo) > 0; { // a route may need another one, to its gateway
		progress = false
		todo = slices.DeleteFunc(todo, func(m []byte) bool {
			if link := intOf(attributes(m[unix.SizeofRtMsg:], unix.RTA_OIF)[unix.RTA_OIF]); link != 0 && r.index[link] == 0 {
				return true // its link is not copied
			}
			_, err := s.Ask(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_APPEND, r.routeMessage(m))
			if err == nil || err == unix.EEXIST {
				progress = progress || err == nil
				return true
			}
			failed = err
			return false
		})
	}
	for _, m := range todo {
		a := attributes(m[unix.SizeofRtMsg:], unix.RTA_TABLE)
		to, _ := netip.AddrFromSlice(a[unix.RTA_DST])
		r.refuse(fmt.Sprintf("route to %s/%d in table %s", to, m[1], routeTable(m, a)), failed)
	}
	there, err := s.Dump(unix.RTM_GETROUTE, make([]byte, unix.SizeofRtMsg))
	if err != nil {
		return err
	}
	key := func(m []byte) string {
		a := attributes(m[unix.SizeofRtMsg:], unix.RTA_TABLE)
		return fmt.Sprintf("%d %d %x %x %s", m[0], m[1], a[unix.RTA_DST], a[unix.RTA_OIF], routeTable(m, a))
	}
	wanted := map[string]bool{}
	for _, m := range r.Capture.Routes {
		wanted[key(r.routeMessage(m))] = true
	}
	for _, m := range there {
		if m[5] == unix.RTPROT_KERNEL && m[4] == unix.RT_TABLE_MAIN && !wanted[key(m)] {
			_, err := s.Ask(unix.RTM_DELROUTE, 0, r.routeMessage(m))
			r.refuse("removing a route", err)
		}
	}
	return nil
}

// replaceRules adds the node's routing rules, and removes those that a new namespace has and the node lacks.
func (r *Replica) replaceRules(s *wire.Conn) error {
	const priority = 6 // FRA_PRIORITY
	wanted := map[[2]int]bool{}
	key := func(m []byte) [2]int {
		return [2]int{int(m[0]), intOf(attributes(m[unix.SizeofRtMsg:], priority)[priority])}
	}
	for _, m := range r.Capture.Rules {
		wanted[key(m)] = true
		_, err := s.Ask(unix.RTM_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, ruleMessage(m))
		r.refuse(fmt.Sprintf("routing rule %d", key(m)[1]), err)
	}
	there, err := s.Dump(unix.RTM_GETRULE, make([]byte, unix.SizeofRtMsg))
	if err != nil {
		return err
	}
	for _, m := range there {
		if !wanted[key(m)] {
			_, err := s.Ask(unix.RTM_DELRULE, 0, ruleMessage(m))
			r.refuse("removing a routing rule", err)
		}
	}
	return nil
}

func ruleMessage(m []byte) []byte {
	const invert = 2 // FIB_RULE_INVERT
	out := bytes.Clone(m)
	binary.NativeEndian.PutUint32(out[8:], binary.NativeEndian.Uint32(out[8:])&invert)
	return out
}

// The addresses and the table of other sides.
const anyTable = 100

var (
	gateway4, gateway6 = netip.MustParseAddr("169.254.77.1"), netip.MustParseAddr("fe80::77")
	outside4           = netip.MustParseAddr("169.254.77.2")
)

// setEnd sets up the other side of a link, in its namespace.
func (r *Replica) setEnd(ctx context.Context, s *wire.Conn, e *End) error {
	links, err := s.Dump(unix.RTM_GETLINK, make([]byte, unix.SizeofIfInfomsg))
	if err != nil {
		return err
	}
	dev := 0
	for _, m := range links {
		if name(attributes(m[unix.SizeofIfInfomsg:], unix.IFLA_IFNAME)[unix.IFLA_IFNAME]) == "eth0" {
			dev = intOf(m[4:8])
		}
	}
	if !e.link.Carrier && e.link.Up {
		return nil // it stays down, so that the link has no carrier
	}
	top := r.top(e.link)
	ask := func(kind, flags uint16, payload ...[]byte) {
		_, one := s.Ask(kind, flags, slices.Concat(payload...))
		if one != unix.EEXIST && one != unix.EOPNOTSUPP && one != unix.EAFNOSUPPORT {
			err = cmp.Or(err, one)
		}
	}
	const create = unix.NLM_F_CREATE | unix.NLM_F_REPLACE
	ask(unix.RTM_NEWLINK, 0, linkHeader(dev, unix.IFF_UP))
	if e.silent || err != nil {
		return err
	}
	if e.link.Up {
		if err := awaitUp(ctx, s, map[int]bool{dev: true}); err != nil {
			return err
		}
	}
	for _, ipv6 := range []bool{false, true} {
		via, fam := gateway4, byte(unix.AF_INET)
		if ipv6 {
			via, fam = gateway6, unix.AF_INET6
			if _, missing := os.Stat("/proc/sys/net/ipv6"); missing != nil || top.MTU < 1280 {
				continue
			}
		}
		fixed := true
		if !e.Pod {
			if !ipv6 {
				ask(unix.RTM_NEWADDR, create, addressOf(dev, netip.PrefixFrom(outside4, 32)))
			}
			rule := make([]byte, unix.SizeofRtMsg)
			rule[0], rule[4], rule[7] = fam, anyTable, 1 // FR_ACT_TO_TBL
			const iif, priority = 3, 6
			ask(unix.RTM_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, rule, text(iif, "eth0"), number(priority, 10))
			ask(unix.RTM_NEWROUTE, create, routeHeader(fam, 0, anyTable, unix.RTN_LOCAL), number(unix.RTA_OIF, 1))
		}
		for _, a := range e.addresses {
			if a.Is6() != ipv6 {
				continue
			}
			bits := a.BitLen()
			for _, own := range r.Capture.addressesOf(top.Index) {
				if own.prefix.Contains(a) && own.prefix.Bits() < bits && own.prefix.Addr() != a {
					bits, via, fixed = own.prefix.Bits(), own.prefix.Addr(), false
				}
			}
			ask(unix.RTM_NEWADDR, create, addressOf(dev, netip.PrefixFrom(a, bits)))
		}
		if ipv6 && !e.Pod { // a gateway answers only for addresses that it has
			for _, a := range r.Capture.gateways(top.Index) {
				if a.Is6() {
					ask(unix.RTM_NEWADDR, create, addressOf(dev, netip.PrefixFrom(a, 128)))
				}
			}
		}
		if fixed {
			ask(unix.RTM_NEWNEIGH, create, neighbour(dev, via, top.MAC))
		}
		header := routeHeader(fam, 0, unix.RT_TABLE_MAIN, unix.RTN_UNICAST)
		binary.NativeEndian.PutUint32(header[8:], unix.RTNH_F_ONLINK)
		ask(unix.RTM_NEWROUTE, create, header, attribute(unix.RTA_GATEWAY, via.AsSlice()), number(unix.RTA_OIF, dev))
	}
	return err
}

func addressOf(link int, p netip.Prefix) []byte {
	b := make([]byte, unix.SizeofIfAddrmsg)
	b[0], b[1], b[2] = family(p.Addr()), byte(p.Bits()), unix.IFA_F_NODAD
	if p.Addr().IsLinkLocalUnicast() {
		b[3] = unix.RT_SCOPE_LINK
	}
	binary.NativeEndian.PutUint32(b[4:], uint32(link))
	return slices.Concat(b, attribute(unix.IFA_LOCAL, p.Addr().AsSlice()), attribute(unix.IFA_ADDRESS, p.Addr().AsSlice()))
}

func routeHeader(family, bits, table, kind byte) []byte {
	b := make([]byte, unix.SizeofRtMsg)
	b[0], b[1], b[4], b[5], b[7] = family, bits, table, unix.RTPROT_STATIC, kind
	if kind == unix.RTN_LOCAL {
		b[6] = unix.RT_SCOPE_HOST
	}
	return b
}
