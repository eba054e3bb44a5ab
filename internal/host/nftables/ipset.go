package nftables

import (
	"context"
	"encoding/binary"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"nodegate/internal/nlattr"
	"nodegate/internal/ruleset"
)

// The messages of include/uapi/linux/netfilter/ipset/ip_set.h.
const (
	ipsetList     = 7 // IPSET_CMD_LIST
	ipsetProtocol = 1 // IPSET_ATTR_PROTOCOL, and the next ones
	ipsetName     = 2
	ipsetType     = 3
	ipsetHeader   = 7
	ipsetElements = 8
	ipsetNetmask  = 20 // in the header
	ipsetIP       = 1  // in an element
	ipsetIPTo     = 2
	ipsetCIDR     = 3
	ipsetPort     = 4
	ipsetProto    = 7
	ipsetFlags    = 8
	ipsetMember   = 18
	ipsetNoMatch  = 1 << 2
)

// IPSets returns the sets of ipset whose elements begin with an address, and lists of sets, by name. A set of another kind is nil.
// The kernel loads ip_set for the request: ask only if a rule uses a set.
func IPSets(ctx context.Context) (map[string]*ruleset.IPSet, error) {
	c, err := dial(ctx, unix.AF_UNSPEC)
	if err != nil {
		return nil, err
	}
	defer c.close()
	c.subsystem = unix.NFNL_SUBSYS_IPSET
	sets := map[string]*ruleset.IPSet{}
	err = c.ask(ipsetList, unix.NLM_F_DUMP, []attribute{{ipsetProtocol, "\x06"}}, func(_ int, b []byte) error {
		var a [ipsetElements + 1][]byte
		if err := nlattr.Split(b[nfGenMsg:], a[:]); err != nil {
			return err
		}
		name := strings.TrimRight(string(a[ipsetName]), "\x00")
		set := sets[name]
		if a[ipsetType] != nil { // a long set comes in several messages
			var header [ipsetNetmask + 1][]byte
			if err := nlattr.Split(a[ipsetHeader], header[:]); err != nil {
				return err
			}
			set = &ruleset.IPSet{}
			switch kind := strings.TrimRight(string(a[ipsetType]), "\x00"); {
			case kind == "list:set":
				set.Members = []string{}
			case header[ipsetNetmask] != nil || kind != "bitmap:ip" && !strings.HasPrefix(kind, "hash:ip") && !strings.HasPrefix(kind, "hash:net"):
				set = nil
			case kind == "hash:ip,port" || kind == "hash:net,port":
				set.Ports = []ruleset.IPSetPort{}
			default:
				set.Partial = strings.Contains(kind, ",")
			}
		}
		for rest := a[ipsetElements]; len(rest) > 0 && set != nil; {
			_, one, left, err := nlattr.Next(rest)
			if err != nil {
				return err
			}
			if rest = left; !addElement(set, one) {
				set = nil
			}
		}
		sets[name] = set
		return nil
	})
	return sets, err
}

// addElement adds an element to a set. It returns false if the element is of another kind.
func addElement(set *ruleset.IPSet, b []byte) bool {
	var a [ipsetMember + 1][]byte
	if nlattr.Split(b, a[:]) != nil {
		return false
	}
	if set.Members != nil {
		set.Members = append(set.Members, strings.TrimRight(string(a[ipsetMember]), "\x00"))
		return true
	}
	if flags := a[ipsetFlags]; len(flags) == 4 && binary.BigEndian.Uint32(flags)&ipsetNoMatch != 0 { // takes addresses out
		set.Partial = true
		return set.Ports == nil
	}
	first, ok := ipsetAddress(a[ipsetIP])
	port, proto := a[ipsetPort], a[ipsetProto]
	if !ok || set.Ports != nil && (len(port) != 2 || len(proto) != 1) {
		return false
	}
	span := ruleset.Span{First: first, Last: first}
	if cidr := a[ipsetCIDR]; len(cidr) == 1 {
		p := netip.PrefixFrom(first, int(cidr[0])).Masked()
		span = ruleset.Span{First: p.Addr(), Last: ruleset.Last(p)}
	} else if last, is := ipsetAddress(a[ipsetIPTo]); is {
		span.Last = last
	}
	if set.Ports != nil {
		name := map[byte]string{unix.IPPROTO_TCP: "tcp", unix.IPPROTO_UDP: "udp", unix.IPPROTO_SCTP: "sctp"}[proto[0]]
		set.Ports = append(set.Ports, ruleset.IPSetPort{Protocol: name, Port: binary.BigEndian.Uint16(port)})
	}
	set.Spans = append(set.Spans, span)
	return true
}

// ipsetAddress reads an address. IPSET_ATTR_IPADDR_IPV4 and IPV6 are inside an attribute of their own.
func ipsetAddress(b []byte) (netip.Addr, bool) {
	if len(b) == 0 {
		return netip.Addr{}, false
	}
	_, value, _, err := nlattr.Next(b)
	if err != nil {
		return netip.Addr{}, false
	}
	return netip.AddrFromSlice(value)
}
