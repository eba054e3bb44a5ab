package path

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// match is one condition of a rule.
type match struct {
	text string
	test func(*Node, *Packet) Answer
}

// options reads the words of a rule of iptables.
type options struct {
	words []string
	not   bool
	at    int // where the current option began
}

func (o *options) next() string {
	if len(o.words) <= o.at {
		return ""
	}
	w := o.words[o.at]
	o.at++
	return w
}

// readMatch returns the condition that an option of a rule stands for. known is false if w is an
// option without a condition of its own, and test is nil if the condition is not known.
func readMatch(w string, o *options) (test func(*Node, *Packet) Answer, known bool) {
	switch w {
	case "-s", "--source":
		return readAddress(o.next(), true), true
	case "-d", "--destination":
		return readAddress(o.next(), false), true
	case "-p", "--protocol":
		return readProtocol(o.next()), true
	case "-i", "--in-interface":
		return readLink(o.next(), true), true
	case "-o", "--out-interface":
		return readLink(o.next(), false), true
	case "--dport", "--dports", "--destination-port":
		return readPorts(o.next(), func(p *Packet) []uint16 { return []uint16{p.Port} }), true
	case "--sport", "--sports", "--source-port":
		return readPorts(o.next(), func(p *Packet) []uint16 { return []uint16{p.SourcePort} }), true
	case "--ports":
		return readPorts(o.next(), func(p *Packet) []uint16 { return []uint16{p.SourcePort, p.Port} }), true
	case "--ctstate", "--state":
		return readStates(strings.Split(o.next(), ",")), true
	case "--mark":
		return nil, true // readRule knows whether this is mark or connmark
	case "--src-type":
		return readType(o.next(), false), true
	case "--dst-type":
		return readType(o.next(), true), true
	case "--src-range":
		return readRange(o.next(), func(p *Packet) netip.Prefix { return p.Source }), true
	case "--dst-range":
		return readRange(o.next(), func(p *Packet) netip.Prefix { return p.Destination }), true
	case "--ctorigdst":
		return readOriginal(o.next()), true
	case "--ctdir":
		return readDirection(o.next()), true
	case "--ctstatus":
		return readStatus(strings.Split(o.next(), ",")), true
	case "--length":
		return readLength(o.next()), true
	case "--ttl-eq", "--hl-eq":
		return readTTL(o.next()), true
	case "--ttl-lt", "--hl-lt":
		return readTTL("<" + o.next()), true
	case "--ttl-gt", "--hl-gt":
		return readTTL(">" + o.next()), true
	case "--icmp-type", "--icmpv6-type":
		o.next()
		return func(_ *Node, p *Packet) Answer {
			if p.Protocol == "tcp" || p.Protocol == "udp" || p.Protocol == "sctp" {
				return No
			}
			return Unknown
		}, true
	case "--tcp-flags":
		return readFlags(o.next(), o.next()), true
	case "--syn":
		return readFlags("FIN,SYN,RST,ACK", "SYN"), true
	}
	return nil, false
}

func readAddress(text string, source bool) func(*Node, *Packet) Answer {
	r, ok := parsePrefix(text)
	if !ok {
		return nil
	}
	return func(_ *Node, p *Packet) Answer { return p.isIn(r, source) }
}

// parsePrefix reads 10.0.0.0/8, 10.0.0.0/255.0.0.0 and 10.0.0.1.
func parsePrefix(text string) (netip.Prefix, bool) {
	if p, err := netip.ParsePrefix(text); err == nil {
		return p.Masked(), true
	}
	address, mask, masked := strings.Cut(text, "/")
	a, err := netip.ParseAddr(address)
	if err != nil {
		return netip.Prefix{}, false
	}
	if !masked {
		return Addr(a), true
	}
	m, err := netip.ParseAddr(mask)
	if err != nil || m.Is4() != a.Is4() {
		return netip.Prefix{}, false
	}
	bits, ended := 0, false
	for _, b := range m.AsSlice() {
		for i := 7; i >= 0; i-- {
			one := b>>i&1 == 1
			if one && ended {
				return netip.Prefix{}, false
			}
			ended = ended || !one
			if one {
				bits++
			}
		}
	}
	return netip.PrefixFrom(a, bits).Masked(), true
}

func readRange(text string, of func(*Packet) netip.Prefix) func(*Node, *Packet) Answer {
	from, to, _ := strings.Cut(text, "-")
	first, err := netip.ParseAddr(from)
	last, failed := netip.ParseAddr(to)
	if err != nil || failed != nil {
		return nil
	}
	return func(_ *Node, p *Packet) Answer { return inSpan(of(p), first, last) }
}

// inSpan answers whether an address somewhere in p is one of first to last.
func inSpan(p netip.Prefix, first, last netip.Addr) Answer {
	if !p.IsValid() {
		return Unknown
	}
	low, high := p.Masked().Addr(), lastOf(p)
	if high.Less(first) || last.Less(low) {
		return No
	}
	if low, high = hosts(p); !low.Less(first) && !last.Less(high) {
		return Yes
	}
	return Unknown
}

func protocolNumber(text string) (int, bool) {
	for name, n := range map[string]int{"icmp": 1, "igmp": 2, "tcp": 6, "udp": 17, "udplite": 136, "dccp": 33, "gre": 47, "esp": 50,
		"ah": 51, "icmpv6": 58, "ipv6-icmp": 58, "sctp": 132, "vrrp": 112, "ospf": 89, "ipencap": 4, "ipip": 4, "ipv4": 4, "ipv6": 41} {
		if name == text {
			return n, true
		}
	}
	n, err := strconv.ParseUint(text, 0, 8)
	return int(n), err == nil
}

func readProtocol(text string) func(*Node, *Packet) Answer {
	if text == "all" || text == "0" {
		return func(*Node, *Packet) Answer { return Yes }
	}
	want, ok := protocolNumber(text)
	if !ok {
		return nil
	}
	return func(_ *Node, p *Packet) Answer {
		if p.Protocol == "" {
			return Unknown
		}
		got, ok := protocolNumber(p.Protocol)
		if !ok {
			return Unknown
		}
		return answer(got == want)
	}
}

// readLink reads -i and -o. A link that the hook does not have (-o in PREROUTING) is the empty name, which "+" matches.
func readLink(pattern string, in bool) func(*Node, *Packet) Answer {
	return func(n *Node, p *Packet) Answer {
		link := p.Out
		if in {
			link = p.In
		}
		switch {
		case pattern == "+" || pattern == "*":
			return Yes
		case link != "" && link != none:
			return matchLink(link, pattern)
		case link == none || !in && p.Unnamed && isOnlyOfPods(pattern) || n.Elsewhere != nil && n.Elsewhere(pattern, in):
			return No
		}
		return Unknown
	}
}

// none is the link of a packet at a hook that does not have this link.
const none = "-"

type portRange struct{ first, last uint16 }

func parsePorts(text string) (list []portRange, ok bool) {
	for one := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(one, ":")
		if !isRange {
			from, to, isRange = strings.Cut(one, "-")
		}
		if !isRange {
			to = from
		}
		if from == "" {
			from = "0"
		}
		if to == "" {
			to = "65535"
		}
		first, err := strconv.ParseUint(from, 10, 16)
		last, failed := strconv.ParseUint(to, 10, 16)
		if err != nil || failed != nil {
			return nil, false
		}
		list = append(list, portRange{uint16(first), uint16(last)})
	}
	return list, true
}

// readPorts answers whether one of the packet's ports is in the list.
func readPorts(text string, of func(*Packet) []uint16) func(*Node, *Packet) Answer {
	list, ok := parsePorts(text)
	if !ok {
		return nil
	}
	return func(_ *Node, p *Packet) Answer {
		result := No
		for _, port := range of(p) {
			if port == 0 {
				if len(list) == 1 && list[0].first <= 1 && list[0].last == 65535 { // no packet has port 0
					return Yes
				}
				result = Unknown
				continue
			}
			for _, r := range list {
				if r.first <= port && port <= r.last {
					return Yes
				}
			}
		}
		return result
	}
}

func readStates(list []string) func(*Node, *Packet) Answer {
	return func(_ *Node, p *Packet) Answer {
		if p.early && p.State != StateUntracked { // raw comes before conntrack
			return answer(slices.Contains(list, StateInvalid))
		}
		for _, s := range list {
			switch s {
			case "DNAT":
				if p.dnat && !p.kept || p.reply.dnat {
					return Yes
				}
			case "SNAT":
				if p.snat || p.reply.snat {
					return Yes
				}
			default:
				if p.State == s {
					return Yes
				}
			}
		}
		if p.State == "" || p.State == StateEstablished && !p.reply.is {
			return stateLeft(list, p)
		}
		return No
	}
}

// stateLeft answers for a connection whose state or translation is not known in full.
func stateLeft(list []string, p *Packet) Answer {
	for _, s := range list {
		if p.State == "" || s == "DNAT" || s == "SNAT" {
			return Unknown
		}
	}
	return No
}

// readFlags reads --tcp-flags.
func readFlags(mask, want string) func(*Node, *Packet) Answer {
	has := func(list, flag string) bool {
		for f := range strings.SplitSeq(list, ",") {
			if f == flag || f == "ALL" {
				return true
			}
		}
		return false
	}
	return func(_ *Node, p *Packet) Answer {
		flags := p.flags()
		switch {
		case p.Protocol == "":
			return Unknown
		case p.Protocol != "tcp":
			return No
		case flags == nil:
			return Unknown
		}
		for _, flag := range []string{"SYN", "ACK", "FIN", "RST", "URG", "PSH"} {
			if has(mask, flag) && has(want, flag) != slices.Contains(flags, flag) {
				return No
			}
		}
		return Yes
	}
}
