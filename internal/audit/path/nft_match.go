package path

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"nodegate/internal/ruleset"
)

// values reads the right side of a match: a value, a list, "{ a, b }", or the elements of "@set".
// known is false if they cannot all be read.
func (r *nftReader) values() (list []string, known bool) {
	if name, is := strings.CutPrefix(r.peek(), "@"); is {
		r.next()
		set := r.t.Sets[name]
		if set == nil {
			return []string{"@" + name}, false
		}
		for _, e := range set.Elements {
			list = append(list, e.String())
		}
		return list, true
	}
	var words []string
	if r.peek() == "{" {
		r.next()
		for len(r.words) > 0 && r.peek() != "}" {
			words = append(words, r.next())
		}
		r.next()
	} else {
		for words = append(words, r.next()); (strings.HasSuffix(words[len(words)-1], ",") || words[0] == "range" && len(words) < 3) &&
			len(r.words) > 0; {
			words = append(words, r.next())
		}
	}
	known = len(words) > 0
	for one := range strings.SplitSeq(strings.ReplaceAll(strings.Join(words, " "), " | ", ", "), ", ") {
		if n := len(list) - 1; n >= 0 && strings.HasPrefix(list[n], "range ") && !strings.Contains(list[n], ", ") {
			list[n] += ", " + one
		} else {
			list = append(list, one)
		}
		known = known && one != "..." && !strings.HasSuffix(one, "...")
	}
	return list, known
}

// compare returns the test of a selector, or of a concatenation, against a list of values.
func (r *nftReader) compare(parts []selector, list []string) func(*Node, *Packet) Answer {
	if len(parts) == 1 {
		return r.one(parts[0], list)
	}
	return anyOf(list, func(text string) func(*Node, *Packet) Answer {
		values := strings.Split(text, " . ")
		if len(values) != len(parts) {
			return nil
		}
		i := -1
		others := anyOf(values, func(text string) func(*Node, *Packet) Answer { // one field differs
			i++
			return invert(r.one(parts[i], []string{text}), true)
		})
		return invert(others, others != nil)
	})
}

// one returns the test of one field, or nil if it is not known.
func (r *nftReader) one(s selector, list []string) func(*Node, *Packet) Answer {
	switch s.words {
	case "ip saddr", "ip6 saddr", "ip daddr", "ip6 daddr", "ct original ip daddr", "ct original ip6 daddr":
		return r.addresses(s, list)
	case "meta nfproto":
		is := slices.Contains(list, map[string]string{ruleset.IPv4: "ipv4", ruleset.IPv6: "ipv6"}[r.family])
		return func(*Node, *Packet) Answer { return answer(is) }
	case "meta protocol", "ether type":
		is := slices.Contains(list, r.family)
		return func(_ *Node, p *Packet) Answer {
			if p.ARP {
				return answer(slices.Contains(list, "arp"))
			}
			return answer(is)
		}
	case "meta l4proto", "ip protocol", "ip6 nexthdr":
		return anyOf(list, readProtocol)
	case "meta iifname", "meta iif":
		return anyOf(list, func(text string) func(*Node, *Packet) Answer { return readLink(text, true) })
	case "meta oifname", "meta oif":
		return anyOf(list, func(text string) func(*Node, *Packet) Answer { return readLink(text, false) })
	case "ct state", "ct status":
		for i := range list {
			list[i] = strings.ToUpper(list[i])
		}
		if s.words == "ct status" {
			return readStatus(list)
		}
		return readStates(list)
	case "fib daddr type", "fib saddr type":
		destination := s.words == "fib daddr type"
		return anyOf(list, func(text string) func(*Node, *Packet) Answer { return readType(strings.ToUpper(text), destination) })
	case "meta mark", "ct mark":
		return s.readMarks(list)
	case "ip ttl", "ip6 hoplimit":
		return anyOf(list, readTTL)
	}
	return s.readService(list)
}

// addresses returns the test of an address. A packet of the other family does not have it.
func (r *nftReader) addresses(s selector, list []string) func(*Node, *Packet) Answer {
	family := ruleset.IPv4
	if strings.Contains(s.words, "ip6 ") {
		family = ruleset.IPv6
	}
	spans, ok := ruleset.Spans(list)
	switch {
	case family != r.family:
		return func(*Node, *Packet) Answer { return No }
	case !ok || s.masked:
		return nil
	}
	original, source := strings.HasPrefix(s.words, "ct "), strings.HasSuffix(s.words, "saddr")
	return func(n *Node, p *Packet) Answer {
		switch {
		case original && !p.tracked():
			return No
		case original:
			return p.inSpans(p.firstDestination(n), spans, source)
		}
		return p.inSpans(p.end(source), spans, source)
	}
}

// excludes reports whether no packet of p has a source, or destination, from first to last.
func (p *Packet) excludes(first, last netip.Addr, source bool) bool {
	not, unnamed := p.NotTo, p.Unnamed && !p.Destination.IsValid()
	if source {
		not, unnamed = p.NotFrom, p.UnnamedFrom && !p.Source.IsSingleIP()
	}
	return not.IsValid() && not.Contains(first) && not.Contains(last) || unnamed && first == last
}

// anyOf answers whether one of several tests answers yes. It returns nil if one is not known.
func anyOf(list []string, read func(string) func(*Node, *Packet) Answer) func(*Node, *Packet) Answer {
	var tests []func(*Node, *Packet) Answer
	for _, text := range list {
		test := read(strings.Trim(text, "\""))
		if test == nil {
			return nil
		}
		tests = append(tests, test)
	}
	return func(n *Node, p *Packet) Answer {
		result := No
		for _, test := range tests {
			if a := test(n, p); a == Yes {
				return Yes
			} else if a == Unknown {
				result = Unknown
			}
		}
		return result
	}
}

func (s selector) readMarks(list []string) func(*Node, *Packet) Answer {
	mask := ^uint32(0)
	if s.masked {
		mask = s.mask
	}
	return anyOf(list, func(text string) func(*Node, *Packet) Answer {
		value, err := strconv.ParseUint(text, 0, 32)
		if err != nil {
			return nil
		}
		return func(_ *Node, p *Packet) Answer {
			if s.words == "ct mark" {
				if !p.tracked() {
					return No
				}
				return p.ConnMark.matches(uint32(value), mask)
			}
			return p.Mark.matches(uint32(value), mask)
		}
	})
}

// readService reads ports. Other fields of a protocol are not known, unless the packet has another protocol.
func (s selector) readService(list []string) func(*Node, *Packet) Answer {
	protocol, field, _ := strings.Cut(s.words, " ")
	if !slices.Contains([]string{"tcp", "udp", "sctp", "th", "icmp", "icmpv6"}, protocol) || strings.Contains(s.words, "?") {
		return nil
	}
	ports := make([]string, 0, len(list))
	for _, text := range list {
		ports = append(ports, strings.ReplaceAll(strings.TrimPrefix(text, "range "), ", ", "-"))
	}
	var test func(*Node, *Packet) Answer
	switch field {
	case "dport":
		test = readPorts(strings.Join(ports, ","), func(p *Packet) []uint16 { return []uint16{p.Port} })
	case "sport":
		test = readPorts(strings.Join(ports, ","), func(p *Packet) []uint16 { return []uint16{p.SourcePort} })
	}
	return func(n *Node, p *Packet) Answer {
		switch {
		case protocol != "th" && p.Protocol != "" && p.Protocol != protocol:
			return No
		case test == nil || protocol != "th" && p.Protocol == "":
			return Unknown
		}
		return test(n, p)
	}
}

// selectors reads a selector, or a concatenation.
func (r *nftReader) selectors(first string) []selector {
	parts := []selector{r.selector(first)}
	for r.peek() == "." {
		r.next()
		parts = append(parts, r.selector(r.next()))
	}
	for _, s := range parts {
		network, _, _ := strings.Cut(strings.TrimPrefix(s.words, "ct original "), " ")
		r.only(network)
	}
	return parts
}

// only adds the condition that a field of IPv4 or IPv6 implies in a table of family inet.
func (r *nftReader) only(network string) {
	if (network == "ip" || network == "ip6") && network != r.family {
		r.out.matches = append(r.out.matches, match{"meta nfproto", func(*Node, *Packet) Answer { return No }})
	}
}

// refuse inverts a test. A packet without one of the fields matches neither way.
func refuse(parts []selector, test func(*Node, *Packet) Answer) func(*Node, *Packet) Answer {
	return func(n *Node, p *Packet) Answer {
		if slices.ContainsFunc(parts, func(s selector) bool { return !s.applies(p) }) {
			return No
		}
		return test(n, p).not()
	}
}

// applies reports whether a packet may have the field of a selector.
func (s selector) applies(p *Packet) bool {
	protocol, _, _ := strings.Cut(s.words, " ")
	switch protocol {
	case "tcp", "udp", "sctp", "icmp", "icmpv6", "dccp", "udplite", "esp", "ah":
		return p.Protocol == "" || p.Protocol == protocol
	case "ct":
		return s.words == "ct state" || p.tracked()
	}
	return true
}
