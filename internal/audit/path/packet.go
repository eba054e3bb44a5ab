// Package path follows a packet through all rules of a node: raw, mangle, nat and filter of every
// hook, in the order of the kernel, for both iptables backends and for nftables.
//
// A match has three answers. If the rules and the known facts do not decide a match (an ipset, a
// rate limit, a field of the packet that is not known), the packet takes both ways, and each way
// records its doubt: nothing is guessed. A random match splits the packet by its probability.
//
// The package knows rules as ruleset reads them; it opens no files and runs no programs. The semantics follow
// net/ipv4/netfilter/ip_tables.c, net/netfilter/nf_nat_core.c and net/netfilter/nf_tables_core.c of Linux 6.12.
package path

import (
	"fmt"
	"net/netip"
	"strings"
)

// Answer is the result of a match. The zero value is the safe one.
type Answer int8

// The three answers.
const (
	Unknown Answer = iota
	Yes
	No
)

func (a Answer) not() Answer {
	switch a {
	case Yes:
		return No
	case No:
		return Yes
	}
	return Unknown
}

func answer(b bool) Answer {
	if b {
		return Yes
	}
	return No
}

// Connection states, as conntrack's match names them.
const (
	StateNew         = "NEW"
	StateEstablished = "ESTABLISHED"
	StateRelated     = "RELATED"
	StateInvalid     = "INVALID"
	StateUntracked   = "UNTRACKED"
)

// Packet is a packet, or a class of packets: an empty field is not known. It is comparable.
type Packet struct {
	Source, Destination netip.Prefix // the address is somewhere in the range
	NotFrom             netip.Prefix // the source is certainly not in this range
	NotTo               netip.Prefix // the destination is certainly not in this range
	Original            netip.Prefix // the destination before the first translation, if a rule has changed it
	Unnamed             bool         // the destination is another machine, whose address no rule names
	UnnamedFrom         bool         // the source is such a machine, or a Pod in the range that no rule names alone
	Protocol            string       // tcp, udp, sctp, icmp, or a number
	SourcePort          uint16
	Port                uint16 // destination port
	In, Out             string // links; for a packet of the node itself, In does not matter. A walk uses Out behind the routing decision
	State               string // StateNew and so on; empty means not known
	Own                 bool   // the node itself sends the packet
	ToNode              Answer // the destination is an address of the node
	FirstReply          bool   // the first reply of a connection: of TCP with the flags SYN and ACK
	ARP                 bool   // not of IP, at a hook of links
	Full                bool   // a later packet, as large as the path allows
	Mark, ConnMark      Mark
	Zone                uint32 // of conntrack

	leaves     string // Out as the caller gave it
	dnat, snat bool   // this packet set up a translation
	kept       bool   // the new destination is the old one: conntrack then does not call it DNAT
	early      bool   // conntrack has not seen the packet yet
	reply      reply
}

// Translated reports whether a rule has changed the packet's destination.
func (p *Packet) Translated() bool { return p.dnat }

// Masqueraded reports whether a rule has changed the packet's source.
func (p *Packet) Masqueraded() bool { return p.snat }

// Mark is a packet's mark as far as it is known. The zero value is the mark 0 of a new packet.
type Mark struct{ Value, Unknown uint32 }

// set returns the mark after --set-xmark value/mask.
func (m Mark) set(value, mask uint32) Mark {
	return Mark{Value: m.Value&^mask ^ value, Unknown: m.Unknown &^ mask}
}

// matches answers --mark value/mask.
func (m Mark) matches(value, mask uint32) Answer {
	switch known := mask &^ m.Unknown; {
	case m.Value&known != value&known || value&^mask != 0:
		return No
	case mask&m.Unknown != 0:
		return Unknown
	}
	return Yes
}

// or returns a mark that is one of two.
func (m Mark) or(o Mark) Mark {
	unknown := m.Unknown | o.Unknown | (m.Value ^ o.Value)
	return Mark{Value: m.Value &^ unknown, Unknown: unknown}
}

func (m Mark) String() string {
	if m.Unknown != 0 {
		return fmt.Sprintf("%#x (bits %#x unknown)", m.Value, m.Unknown)
	}
	return fmt.Sprintf("%#x", m.Value)
}

// Addr returns the range that contains only an address.
func Addr(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// isIn answers whether the source or the destination is in r.
func (p *Packet) isIn(r netip.Prefix, source bool) Answer {
	if p.excludes(r.Addr(), lastOf(r), source) {
		return No
	}
	return within(p.end(source), r)
}

// within answers whether an address somewhere in p is in r.
func within(p, r netip.Prefix) Answer {
	switch {
	case r.Bits() == 0:
		return Yes
	case !p.IsValid():
		return Unknown
	case !p.Overlaps(r):
		return No
	case p.Bits() >= r.Bits():
		return Yes
	}
	return Unknown
}

// matchLink answers -i and -o: a "+" or "*" at the end stands for any rest. The packet's link may be
// such a pattern too: it is then one of these links.
func matchLink(link, pattern string) Answer {
	stem, some := cutWildcard(link)
	want, any := cutWildcard(pattern)
	switch {
	case any && strings.HasPrefix(stem, want), !any && !some && link == pattern:
		return Yes
	case some && strings.HasPrefix(want, stem):
		return Unknown
	}
	return No
}

func cutWildcard(pattern string) (stem string, is bool) {
	stem = strings.TrimSuffix(strings.TrimSuffix(pattern, "+"), "*")
	return stem, stem != pattern
}

// Node holds the facts about a node that rules ask for. Every field is optional.
type Node struct {
	// Own answers whether an address is the node's own.
	Own func(netip.Addr) Answer
	// Services is the range of the addresses from which kube-proxy's rules translated packets.
	Services netip.Prefix
	// Route returns the link by which the node reaches an address, or "" if that is not known.
	Route func(netip.Addr) string
	// Elsewhere reports whether a packet whose link is not known certainly does not come in or leave
	// by this link, given as in a rule: "docker0", "br-+".
	Elsewhere func(pattern string, in bool) bool
	// Lookup returns the kernel's route of a packet whose addresses and mark are known; nil without a kernel to ask.
	Lookup func(*Packet) Hop
	// IPsec answers whether packets are encrypted: whether the kernel has a state or policy of xfrm.
	IPsec Answer
	// Listens answers whether a program takes packets from a queue (NFQUEUE).
	Listens func(queue uint16) Answer
}

// Hop is the kernel's answer to a route lookup. The zero value is not known.
type Hop struct {
	Link   string
	Source netip.Addr // that the kernel gives the node's own packets
	Here   bool       // the address belongs to the node
	Lost   string     // why a route is missing, as errno: "network is unreachable"
}

func (n *Node) own(a netip.Prefix) Answer {
	switch {
	case !a.IsValid() || !a.IsSingleIP():
		return Unknown
	case a.Addr().IsLoopback():
		return Yes
	case a.Addr().IsMulticast():
		return No
	case n.Own == nil:
		return Unknown
	}
	return n.Own(a.Addr())
}
