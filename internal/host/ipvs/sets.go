package ipvs

import (
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
	"nodegate/internal/nlattr"
	"nodegate/internal/ruleset"
	"nodegate/internal/sorted"
)

// Of the kernel's include/uapi/linux/netfilter/ipset/ip_set.h.
const (
	setList     = unix.NFNL_SUBSYS_IPSET<<8 | 7 // IPSET_CMD_LIST
	setProtocol = 6                             // IPSET_PROTOCOL_MIN, which every kernel takes

	aSetProtocol, aSetName, aSetData, aSetEntries = 1, 2, 7, 8 // IPSET_ATTR_*, of a set

	aIP, aSetPort, aProto, aIP2, aCIDR2 = 1, 4, 7, 20, 21 // IPSET_ATTR_*, of an entry
)

// sourceSets are kube-proxy's sets for loadBalancerSourceRanges: the addresses that not everybody may use, and who may
// (pkg/proxy/ipvs/ipset.go; a name has 31 characters at most).
var sourceSets = []struct{ Closed, Ranges string }{
	{"KUBE-LOAD-BALANCER-FW", "KUBE-LOAD-BALANCER-SOURCE-CIDR"},
	{"KUBE-6-LOAD-BALANCER-FW", "KUBE-6-LOAD-BALANCER-SOURCE-CID"},
}

// The ipset functions of vishvananda/netlink (1.3.1) have the same entries, but start a goroutine for each nest of attributes. Two sets
// of 5,000 entries each take 0.84 to 2.0 s of processor time, and 0.02 to 0.03 s here; audit and watch read them again and again. Those
// functions also take no context, so an audit that ends would wait for the kernel. They drop a malformed entry without an error, and
// write unknown attributes to the standard logger.

// sources returns who may use the addresses of load balancers, nil where there are no such sets. It never loads the module.
func sources(ctx context.Context) (map[ruleset.Portal][]netip.Prefix, error) {
	if _, err := os.Stat("/sys/module/ip_set"); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	c, err := open(ctx, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("asking for sets of addresses: %w", err)
	}
	defer c.Close()
	var all map[ruleset.Portal][]netip.Prefix
	for _, of := range sourceSets {
		closed, err := c.entries(of.Closed)
		var ranges []entry
		if err == nil {
			ranges, err = c.entries(of.Ranges)
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if all == nil {
			all = map[ruleset.Portal][]netip.Prefix{}
		}
		for _, e := range closed {
			all[e.Portal] = nil
		}
		for _, e := range ranges {
			if of, is := all[e.Portal]; is {
				all[e.Portal] = append(of, e.source)
			}
		}
	}
	for _, ranges := range all {
		sorted.By(ranges, netip.Prefix.Compare) // the kernel does not order them
	}
	return all, nil
}

// entry is one of a set of kube-proxy's.
type entry struct {
	ruleset.Portal
	source netip.Prefix // of a set of the kind hash:ip,port,net
}

// entries returns what a set has, fs.ErrNotExist where there is no such set.
func (c *conn) entries(name string) ([]entry, error) {
	about := slices.Concat([]byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0}, wire.Attribute(aSetProtocol, []byte{setProtocol}),
		wire.Attribute(aSetName, []byte(name), []byte{0}))
	messages, err := c.list(setList, about)
	var all []entry
	for _, m := range messages {
		if err == nil {
			all, err = decodeEntries(all, m)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("reading set %s: %w", name, err)
	}
	return all, nil
}

// decodeEntries appends the entries that a message has. One of another protocol is passed over.
func decodeEntries(all []entry, message []byte) ([]entry, error) {
	a, err := read(message, 0)
	for entries := a[aSetEntries]; err == nil && len(entries) > 0; {
		var kind int
		var data []byte
		if kind, data, entries, err = nlattr.Next(entries); err != nil || kind != aSetData {
			continue
		}
		var e entry
		var ok bool
		if e, ok, err = decodeEntry(data); ok {
			all = append(all, e)
		}
	}
	return all, err
}

func decodeEntry(data []byte) (e entry, ok bool, err error) {
	a, err := split(data)
	if err != nil {
		return e, false, err
	}
	address, err := setAddress(a[aIP])
	if err == nil && (len(a[aSetPort]) != 2 || len(a[aProto]) != 1) {
		err = fmt.Errorf("an entry with a port of %d bytes and a protocol of %d", len(a[aSetPort]), len(a[aProto]))
	}
	if err != nil {
		return e, false, err
	}
	e.Address = netip.AddrPortFrom(address, binary.BigEndian.Uint16(a[aSetPort]))
	e.Protocol = protocol(uint32(a[aProto][0]))
	if a[aIP2] == nil {
		return e, e.Protocol != "", nil
	}
	source, err := setAddress(a[aIP2])
	if err != nil {
		return e, false, err
	}
	bits := source.BitLen()
	if len(a[aCIDR2]) == 1 {
		bits = int(a[aCIDR2][0])
	}
	if e.source = netip.PrefixFrom(source, bits); !e.source.IsValid() {
		return e, false, fmt.Errorf("a range of %d bits", bits)
	}
	return e, e.Protocol != "", nil
}

// setAddress reads the address in an attribute: IPSET_ATTR_IPADDR_IPV4 or _IPV6.
func setAddress(attribute []byte) (netip.Addr, error) {
	a, err := split(attribute)
	if err != nil {
		return netip.Addr{}, err
	}
	ip, ok := netip.AddrFromSlice(append(a[1], a[2]...))
	if !ok || (a[1] == nil) != ip.Is6() {
		return ip, errors.New("an entry without an address")
	}
	return ip, nil
}
