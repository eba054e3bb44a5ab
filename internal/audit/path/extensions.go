package path

import (
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"nodegate/internal/ruleset"
)

// readModule returns the test of a match of iptables that needs more than one option, or nil if the rules and the known
// facts do not decide it.
func (all *Rules) readModule(module string, args []string) func(*Node, *Packet) Answer {
	option := func(name string) (value string, not, is bool) {
		i := slices.Index(args, name)
		if i < 0 {
			return "", false, false
		}
		if i+1 < len(args) {
			value = args[i+1]
		}
		return value, i > 0 && args[i-1] == "!", true
	}
	switch module {
	case "set":
		name, not, _ := option("--match-set")
		if i := slices.Index(args, name); len(args) == i+2 && (!not || !all.isPartial(name)) {
			return invert(all.readSet(name, args[i+1]), not)
		}
	case "pkttype":
		if kind, not, is := option("--pkt-type"); is { // a connection is between two machines
			return invert(func(*Node, *Packet) Answer { return answer(kind == "unicast") }, not)
		}
	case "owner":
		return readOwner(args)
	case "connlimit":
		if limit, not, is := option("--connlimit-above"); is && limit == "0" && !not { // a connection counts itself
			return func(_ *Node, p *Packet) Answer { return answer(p.State != StateUntracked) }
		}
	case "time":
		return readTime(option, time.Now())
	case "physdev":
		if _, not, is := option("--physdev-is-bridged"); is && len(args) == 1+strings.Count(strings.Join(args, " "), "!") {
			return invert(isBridged, not)
		}
	case "policy":
		_, _, in := option("--dir")
		if kind, _, is := option("--pol"); in && is && len(args) == 4 {
			return func(n *Node, _ *Packet) Answer {
				if kind == "none" {
					return n.IPsec.not()
				}
				return n.IPsec
			}
		}
	}
	return nil
}

func invert(test func(*Node, *Packet) Answer, not bool) func(*Node, *Packet) Answer {
	if test == nil || !not {
		return test
	}
	return func(n *Node, p *Packet) Answer { return test(n, p).not() }
}

// isBridged answers whether a packet leaves by the bridge by which it came in.
func isBridged(_ *Node, p *Packet) Answer {
	switch {
	case p.Own || p.Out == none || p.In == none || p.ToNode == Yes:
		return No
	case p.In == "" || p.Out == "":
		return Unknown
	}
	return answer(p.In == p.Out && HasBridge([]string{p.In}))
}

// readOwner reads the match owner. The node's packets are kubelet's and kube-proxy's, which run as root. Packets that are
// forwarded lack a socket.
func readOwner(args []string) func(*Node, *Packet) Answer {
	own := Yes
	for i := 0; i < len(args); i++ {
		not := args[i] == "!"
		if not {
			i++
		}
		is := Unknown
		switch {
		case args[i] == "--socket-exists":
			is = Yes
		case (args[i] == "--uid-owner" || args[i] == "--gid-owner") && i+1 < len(args):
			i++
			first, _, _ := strings.Cut(args[i], "-")
			is = answer(first == "0" || first == "root")
		default:
			return nil
		}
		if not {
			is = is.not()
		}
		if is == No {
			own = No
		}
	}
	return func(_ *Node, p *Packet) Answer {
		if !p.Own || p.reply.is {
			return No
		}
		return own
	}
}

// readTime reads the match time. It decides only what stays as it is: a date that has passed, the whole day.
func readTime(option func(string) (string, bool, bool), now time.Time) func(*Node, *Packet) Answer {
	_, _, ends := option("--datestop")
	if stop, _, _ := option("--datestop"); ends {
		at, err := time.Parse("2006-01-02T15:04:05", stop)
		if err == nil && at.Add(48*time.Hour).Before(now) { // whatever its zone
			return func(*Node, *Packet) Answer { return No }
		}
		ends = err != nil || at.Add(-48*time.Hour).Before(now) // iptables prints 2038 for none
	}
	start, _, _ := option("--timestart")
	stop, _, _ := option("--timestop")
	_, _, date := option("--datestart")
	_, _, days := option("--weekdays")
	_, _, month := option("--monthdays")
	whole := (start == "" || start == "00:00:00" || start == "00:00") && (stop == "" || strings.HasPrefix(stop, "23:59"))
	if whole && !date && !ends && !days && !month {
		return func(*Node, *Packet) Answer { return Yes }
	}
	return nil
}

// readSet returns the test of a set of ipset, or nil if its elements are not known.
func (all *Rules) readSet(name, dimensions string) func(*Node, *Packet) Answer {
	set := all.sets[name]
	if set == nil {
		return nil
	}
	if set.Members != nil {
		return anyOf(set.Members, func(name string) func(*Node, *Packet) Answer { return all.readSet(name, dimensions) })
	}
	directions := strings.Split(dimensions, ",")
	first, last := directions[0] == "src", directions[len(directions)-1] == "src"
	if set.Ports == nil && (len(directions) == 1 || set.Partial) {
		return func(_ *Node, p *Packet) Answer { return p.inSpans(p.end(first), set.Spans, first) }
	}
	if set.Ports == nil || len(directions) != 2 {
		return nil
	}
	return func(_ *Node, p *Packet) Answer {
		port := p.Port
		if last {
			port = p.SourcePort
		}
		result := No
		for i := range set.Spans {
			at := p.inSpans(p.end(first), set.Spans[i:i+1], first)
			switch to := set.Ports[i]; {
			case at == No || p.Protocol != "" && port != 0 && (to.Protocol != p.Protocol || to.Port != port):
			case at == Yes && p.Protocol != "" && port != 0:
				return Yes
			default:
				result = Unknown
			}
		}
		return result
	}
}

// isPartial reports whether a set of ipset may lack an address that its spans contain.
func (all *Rules) isPartial(name string) bool {
	set := all.sets[name]
	return set != nil && (set.Partial || slices.ContainsFunc(set.Members, all.isPartial))
}

// end returns the source or the destination.
func (p *Packet) end(source bool) netip.Prefix {
	if source {
		return p.Source
	}
	return p.Destination
}

// inSpans answers whether an address, the source or destination of a packet, is in one of several spans.
func (p *Packet) inSpans(of netip.Prefix, spans []ruleset.Span, source bool) Answer {
	result := No
	for _, span := range spans {
		if p.excludes(span.First, span.Last, source) {
			continue
		}
		if a := inSpan(of, span.First, span.Last); a == Yes {
			return Yes
		} else if a == Unknown {
			result = Unknown
		}
	}
	return result
}

// readLength reads the match length. The first packets of a connection have less than 100 bytes; later ones fill the MTU.
func readLength(text string) func(*Node, *Packet) Answer {
	list, ok := parsePorts(text)
	if !ok {
		return nil
	}
	r := list[0]
	return func(_ *Node, p *Packet) Answer {
		switch {
		case r.first == 0 && r.last == math.MaxUint16:
			return Yes
		case p.Full && r.first <= 1280 && r.last >= 1500:
			return Yes
		case p.Full, p.Protocol == "tcp" && (p.State == StateNew || p.FirstReply) && r.first > 100:
			return No
		}
		return Unknown
	}
}

// isRare reports whether few packets usually meet a condition (too many of them, or peculiar ones) or, if the rule did not take
// the packet, miss it.
func isRare(text string, took bool) bool {
	f := strings.Fields(strings.TrimPrefix(text, "-m "))
	if len(f) == 0 {
		return false
	}
	if !took {
		i := slices.Index(f, "--limit")
		if i < 0 || i+1 >= len(f) {
			return f[0] == "hashlimit" || f[0] == "limit" && i < 0
		}
		rate, unit, _ := strings.Cut(f[i+1], "/")
		n, err := strconv.ParseFloat(rate, 64)
		return err == nil && n >= 1 && strings.HasPrefix(unit, "s")
	}
	return slices.Contains([]string{"hashlimit", "recent", "connlimit", "rpfilter", "dscp", "tos", "ttl", "hl", "--length", "length",
		"string", "u32",
		"helper", "connbytes", "ecn", "tcpmss", "mac", "rateest", "geoip", "limit", "ct", "update", "add", "fib", "meta", "icmp", "icmpv6",
		"socket", "cluster", "physdev", "tcp", "--tcp-option", "frag", "rt", "exthdr", "ether", "vlan", "osf",
		"cpu", "devgroup", "cgroup", "cgroupv2",
		"ip", "ip6", "th", "udp"}, strings.TrimPrefix(f[0], "?"))
}

// hosts returns the first and last address that a Pod can have in a range: neither the network's, nor the bridge's, nor the
// broadcast address.
func hosts(p netip.Prefix) (low, high netip.Addr) {
	low, high = p.Masked().Addr(), lastOf(p)
	if p.Addr().BitLen()-p.Bits() < 3 {
		return low, high
	}
	return low.Next().Next(), high.Prev()
}
