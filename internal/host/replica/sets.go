package replica

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/wire"
)

// Messages and attributes of include/uapi/linux/netfilter/ipset/ip_set.h and nfnetlink_acct.h.
const (
	ipsetCreate     = 2
	ipsetDestroy    = 3
	ipsetList       = 7
	ipsetAdd        = 9
	ipsetByName     = 14
	ipsetProtocol   = 1
	ipsetName       = 2
	ipsetType       = 3
	ipsetRevision   = 4
	ipsetFamily     = 5
	ipsetData       = 7
	ipsetElements   = 8
	ipsetLine       = 9
	ipsetIndex      = 11
	ipsetElementsN  = 24 // in the header, as are the next ones: they are not the caller's to set
	ipsetReferences = 25
	ipsetMemory     = 26
	accountNew      = 0
	accountGet      = 1
)

// readSets reads the objects that rules name: counters of nfacct, and ip sets. A rule knows a set by its index, so the copies have the
// same indexes: sets of other names fill the gaps at first.
func (c *Capture) readSets(s *wire.Conn) error {
	add := func(subsystem, kind uint16, payload []byte) {
		c.Sets = append(c.Sets, Message{Kind: kind, Flags: unix.NLM_F_CREATE, Family: unix.NFPROTO_IPV4, Payload: payload})
		c.Subsystems = append(c.Subsystems, subsystem)
	}
	if isLoaded("nfnetlink_acct") {
		accounts, err := s.Dump(unix.NFNL_SUBSYS_ACCT<<8|accountGet, nfnetlink(unix.NFPROTO_UNSPEC))
		if err != nil && !errors.Is(err, unix.EINVAL) {
			return err
		}
		for _, m := range accounts {
			add(unix.NFNL_SUBSYS_ACCT, accountNew, filter(m[netfilterHeader:], func(kind int) bool { return kind < 2 || kind > 4 }))
		}
	}
	if !isLoaded("ip_set") { // the question would load it
		return nil
	}
	protocol := attribute(ipsetProtocol, []byte{7})
	lists, err := s.Dump(unix.NFNL_SUBSYS_IPSET<<8|ipsetList, nfnetlink(unix.NFPROTO_IPV4, protocol))
	if err != nil {
		return err
	}
	type set struct {
		index  int
		create []byte
	}
	var sets []set
	var elements [][]byte
	known := map[string]bool{}
	for _, m := range lists {
		a := attributes(m[netfilterHeader:], ipsetElements)
		called := attribute(ipsetName, a[ipsetName])
		if id := name(a[ipsetName]); a[ipsetType] != nil && !known[id] { // a long set comes in several messages
			known[id] = true
			answer, err := s.Ask(unix.NFNL_SUBSYS_IPSET<<8|ipsetByName, 0, nfnetlink(unix.NFPROTO_IPV4, protocol, called))
			if err != nil || len(answer) == 0 {
				return fmt.Errorf("reading the index of set %s: %w", id, cmp.Or(err, error(unix.EINVAL)))
			}
			index := attributes(answer[0][netfilterHeader:], ipsetIndex)[ipsetIndex]
			if len(index) != 2 {
				return fmt.Errorf("reading the index of set %s: %w", id, unix.EINVAL)
			}
			sets = append(sets, set{int(binary.BigEndian.Uint16(index)), slices.Concat(protocol, called, attribute(ipsetType, a[ipsetType]),
				attribute(ipsetRevision, a[ipsetRevision]), attribute(ipsetFamily, a[ipsetFamily]),
				attribute(ipsetData|unix.NLA_F_NESTED, filter(a[ipsetData], func(kind int) bool {
					return kind != ipsetElementsN && kind != ipsetReferences && kind != ipsetMemory
				})))})
		}
		if len(a[ipsetElements]) > 0 {
			elements = append(elements, slices.Concat(protocol, called, attribute(ipsetLine, make([]byte, 4)),
				attribute(ipsetElements|unix.NLA_F_NESTED, ordered(a[ipsetElements]))))
		}
	}
	slices.SortFunc(sets, func(a, b set) int { return a.index - b.index })
	next := 0
	var holes [][]byte
	for _, one := range sets {
		for ; next < one.index; next++ {
			hole := text(ipsetName, fmt.Sprintf("nodegate-hole-%d", next))
			holes = append(holes, slices.Concat(protocol, hole))
			add(unix.NFNL_SUBSYS_IPSET, ipsetCreate, slices.Concat(protocol, hole,
				text(ipsetType, "hash:ip"), attribute(ipsetRevision, []byte{0}), attribute(ipsetFamily, []byte{unix.NFPROTO_IPV4}),
				attribute(ipsetData|unix.NLA_F_NESTED)))
		}
		add(unix.NFNL_SUBSYS_IPSET, ipsetCreate, one.create)
		next++
	}
	for _, hole := range holes {
		add(unix.NFNL_SUBSYS_IPSET, ipsetDestroy, hole)
	}
	for _, e := range elements {
		add(unix.NFNL_SUBSYS_IPSET, ipsetAdd, e)
	}
	return nil
}

// ordered marks the addresses of elements as in network byte order: the kernel dumps them without the mark that it demands.
func ordered(elements []byte) []byte {
	out := bytes.Clone(elements)
	for e := 0; e+4 <= len(out); {
		size := int(binary.NativeEndian.Uint16(out[e:]))
		if size < 4 || e+size > len(out) {
			break
		}
		for a := e + 4; a+4 <= e+size; {
			inner := int(binary.NativeEndian.Uint16(out[a:]))
			kind := binary.NativeEndian.Uint16(out[a+2:]) &^ unix.NLA_F_NESTED
			if inner < 4 {
				break
			}
			const ip, ipTo, ip2, ip2To = 1, 2, 20, 22
			if (kind == ip || kind == ipTo || kind == ip2 || kind == ip2To) && inner >= 12 && a+8 <= len(out) { // a nest of one address
				at := binary.NativeEndian.Uint16(out[a+6:])
				binary.NativeEndian.PutUint16(out[a+6:], at|unix.NLA_F_NET_BYTEORDER)
			}
			a += wire.Align(inner)
		}
		e += wire.Align(size)
	}
	return out
}
