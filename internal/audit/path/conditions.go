package path

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// readType reads addrtype. The kernel looks for the address in its table local: any other address is UNICAST (net/ipv4/fib_frontend.c).
// Whether an address is a broadcast address of the node is not known, but no connection leads to one.
func readType(text string, destination bool) func(*Node, *Packet) Answer {
	if text != "LOCAL" && text != "MULTICAST" && text != "UNICAST" {
		return nil
	}
	return func(n *Node, p *Packet) Answer {
		a, other := p.Source, p.UnnamedFrom
		if destination {
			a, other = p.Destination, p.Unnamed
		}
		multicast := Unknown
		if a.IsValid() && a.IsSingleIP() {
			multicast = answer(a.Addr().IsMulticast())
		} else if other || !destination {
			multicast = No // a connection comes from one machine
		}
		switch {
		case text == "MULTICAST":
			return multicast
		case text == "LOCAL":
			return n.local(p, destination)
		case multicast == Yes:
			return No
		}
		return n.local(p, destination).not()
	}
}

// local answers whether the destination or source of a packet belongs to the node.
func (n *Node) local(p *Packet, destination bool) Answer {
	switch {
	case destination && p.ToNode != Unknown:
		return p.ToNode
	case destination:
		return n.own(p.Destination)
	case !p.Source.IsSingleIP(): // the kernel drops packets that come in with an address of the node
		return answer(p.Own)
	}
	return n.own(p.Source)
}

// AddServices adds the range of the addresses from which kube-proxy's rules translated packets.
func (all *Rules) AddServices(r netip.Prefix) { all.node.Services = r }

// firstDestination returns the destination of a connection's first packet.
func (p *Packet) firstDestination(n *Node) netip.Prefix {
	switch {
	case p.reply.is: // conntrack's original direction is the other one
		return p.reply.server
	case p.dnat && p.Original.IsValid():
		return p.Original
	case p.dnat:
		return n.Services
	case p.State == StateNew:
		return p.Destination
	}
	return netip.Prefix{} // either end may have sent it
}

func readOriginal(text string) func(*Node, *Packet) Answer {
	r, ok := parsePrefix(text)
	if !ok {
		return nil
	}
	return func(n *Node, p *Packet) Answer {
		if !p.tracked() {
			return Unknown // no, inverted or not
		}
		return within(p.firstDestination(n), r)
	}
}

// readDirection reads --ctdir: ORIGINAL, or REPLY.
func readDirection(text string) func(*Node, *Packet) Answer {
	return func(_ *Node, p *Packet) Answer {
		switch {
		case !p.tracked():
			return No
		case p.reply.is || p.State == StateNew:
			return answer(p.reply.is == (text == "REPLY"))
		}
		return Unknown
	}
}

// readStatus reads conntrack's status. It returns nil if one of its bits is not known.
func readStatus(list []string) func(*Node, *Packet) Answer {
	var rest []string
	seen := false
	for _, one := range list {
		switch one = strings.ReplaceAll(one, "-", "_"); one {
		case "SEEN_REPLY":
			seen = true
		case "DNAT", "SNAT":
			rest = append(rest, one)
		default:
			return nil
		}
	}
	return func(n *Node, p *Packet) Answer {
		translated := readStates(rest)(n, p)
		switch {
		case !seen || translated == Yes:
			return translated
		case !p.tracked():
			return Unknown
		case p.State == StateEstablished:
			return Yes
		case p.State == StateNew:
			return translated
		}
		return Unknown
	}
}

// readTTL reads "64", "<128" and ">5". Linux sends with 64, and each router takes one; of other machines' packets
// only the bounds are known.
func readTTL(text string) func(*Node, *Packet) Answer {
	op := strings.TrimRight(text, "0123456789")
	n, err := strconv.ParseUint(text[len(op):], 10, 8)
	if err != nil || !slices.Contains([]string{"", "<", ">"}, op) {
		return nil
	}
	return func(_ *Node, p *Packet) Answer {
		most := uint64(255)
		if p.Own || p.Source.IsValid() && !p.reply.is || p.In != "" && isOfPods(p.In) {
			most = 64
		}
		if !p.Own && p.Out != none && isBridged(nil, p) == No { // a router has taken one
			most--
		}
		low, high := n, n
		switch op {
		case "<":
			low, high = 0, n-1
		case ">":
			low, high = n+1, 255
		}
		switch {
		case low > most || op == "<" && n <= 1:
			return No
		case low <= 1 && high >= most:
			return Yes
		}
		return Unknown
	}
}

// flags reads a condition about the flags of TCP: "syn" (one of the list), "== syn", "& fin, syn == syn", "! rst".
func (r *nftReader) flags() {
	began := len(r.words)
	text := strings.Join(r.words, " ")
	words := func() (list []string) {
		for more := true; more && len(r.words) > 0; {
			w := r.next()
			more = strings.HasSuffix(w, ",") || r.peek() == "|"
			if r.peek() == "|" {
				r.next()
			}
			list = append(list, strings.ToUpper(strings.Trim(w, "(),")))
		}
		return list
	}
	mask, op := []string(nil), "in"
	r.next()
	if r.peek() == "&" {
		r.next()
		mask, op = words(), "=="
	}
	if slices.Contains([]string{"==", "!=", "!"}, r.peek()) {
		op = r.next()
	}
	list := words()
	used := strings.Fields(text)[:began-len(r.words)]
	test := tcpFlags(mask, op, list)
	r.out.matches = append(r.out.matches, match{"tcp " + strings.Join(used, " "), test})
}

// tcpFlags returns the test of a packet's flags. It is nil if a flag is a number.
func tcpFlags(mask []string, op string, list []string) func(*Node, *Packet) Answer {
	known := []string{"FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECN", "CWR"}
	for _, f := range append(slices.Clip(list), mask...) {
		if !slices.Contains(known, f) {
			return nil
		}
	}
	return func(_ *Node, p *Packet) Answer {
		if p.Protocol != "" && p.Protocol != "tcp" {
			return No
		}
		flags := p.flags()
		if p.Protocol == "" || flags == nil || p.State == StateUntracked {
			return Unknown
		}
		if mask != nil {
			flags = slices.DeleteFunc(flags, func(f string) bool { return !slices.Contains(mask, f) })
		}
		listed := 0
		for _, f := range flags {
			if slices.Contains(list, f) {
				listed++
			}
		}
		is := listed > 0
		if op == "==" || op == "!=" {
			is = listed == len(flags) && listed == len(list)
		}
		return answer(is != (op == "!=" || op == "!"))
	}
}

// flags returns the flags of a packet of TCP, or nil if they are not known.
func (p *Packet) flags() []string {
	switch {
	case p.State == StateNew, p.State == StateUntracked:
		return []string{"SYN"}
	case p.State == StateEstablished && p.FirstReply:
		return []string{"SYN", "ACK"}
	}
	return nil
}
