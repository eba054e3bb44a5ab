// Package replica copies this node's network into scratch namespaces on the same kernel, in which packets show what the node does
// with them. It copies without understanding: rules, routes and routing rules by the kernel's own messages. Only names and
// verdicts are read. Nothing of it is visible on the node, and all of it ends with the process.
package replica

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/netns"
	"nodegate/internal/host/wire"
	"nodegate/internal/host/xtables"
)

// Capture is the input of a replica. It contains only data: another process may build the replica.
type Capture struct {
	Links      []Link
	Addresses  [][]byte // messages of rtnetlink, as are the next ones
	Routes     [][]byte
	Rules      [][]byte
	Nexthops   [][]byte
	Neighbours []Neighbour
	Silent     []netip.Addr      // neighbours that do not answer
	Sysctls    map[string]string // in the form net/ipv4/ip_forward
	Listeners  []Listener
	Untried    []string // parts of the node that the copy lacks
	Queues     []uint16 // of NFQUEUE, from which a program takes packets
	Sets       []Message
	Subsystems []uint16 // of Sets
	NFT        []Unit
	Legacy     []Legacy
	Parts      []Part
}

// Legacy is a table of the legacy backend.
type Legacy struct {
	xtables.Table
	Parts []int // the index in Capture.Parts of each entry, or -1
}

// Part is a piece of the configuration that can be left out of the replica: a rule, the policy of a chain, a routing rule, a route, the
// value of a sysctl, the silence of a next hop, a filter of tc, or a policy of IPsec.
type Part struct {
	Kind     string // PartRule and so on
	Legacy   bool
	Family   byte // as in nf_tables, or of the route
	Table    string
	Chain    string
	Handle   uint64   // of a rule of nf_tables, on the node
	Position int      // of a rule in its chain on the node, from 1
	Own      bool     // kube-proxy wrote it
	Forwards bool     // of a policy: its chain is at hook forward
	Target   string   // a chain to which it leads, whose rules are parts too
	Priority int      // of a routing rule
	To       string   // of a route; a next hop's address; of a sysctl: the value without it; of tc and IPsec: the words that pick it
	Entries  [][]byte // messages of tc and IPsec
	Message  []byte   // of a rule of nf_tables, a routing rule, a route or a neighbour; of a sysctl: its key
}

// The kinds of parts.
const (
	PartRule        = "rule"
	PartPolicy      = "policy"
	PartRoutingRule = "routing rule"
	PartRoute       = "route"
	PartSysctl      = "sysctl"    // Table is its name
	PartNextHop     = "next hop"  // that does not answer; Table is the link
	PartFilter      = "tc filter" // which is, as the next one, also the command that prints them; Table is its own kind
	PartIPsec       = "ip xfrm policy"
)

func (p *Part) String() string {
	backend := "nft"
	if p.Legacy {
		backend = "legacy"
	}
	switch p.Kind {
	case PartRoutingRule:
		return fmt.Sprintf("routing rule %d, table %s", p.Priority, p.Table)
	case PartRoute:
		return fmt.Sprintf("route to %s, table %s", p.To, p.Table)
	case PartSysctl:
		return p.Table
	case PartNextHop:
		return fmt.Sprintf("next hop %s on %s", p.To, p.Table)
	case PartFilter, PartIPsec:
		return p.Kind + " " + p.To + " " + p.Table
	case PartPolicy:
		return fmt.Sprintf("%s family %d table %s: policy of chain %s", backend, p.Family, p.Table, p.Chain)
	}
	return fmt.Sprintf("%s family %d table %s chain %s rule %d handle %d", backend, p.Family, p.Table, p.Chain, p.Position, p.Handle)
}

// Read captures this process's network. keep returns the keys of the Service ports whose chains are copied, from those that the
// rules have. It needs CAP_NET_ADMIN, and changes nothing.
func Read(ctx context.Context, keep func(ports []string) map[string]bool) (*Capture, error) {
	n, err := netns.Current(ctx)
	if err != nil {
		return nil, err
	}
	defer n.Close()
	return ReadIn(ctx, n, keep)
}

// ReadIn captures the network of a namespace.
func ReadIn(ctx context.Context, n *netns.Namespace, keep func(ports []string) map[string]bool) (*Capture, error) {
	c := &Capture{Sysctls: map[string]string{}}
	err := n.Netlink(ctx, unix.NETLINK_ROUTE, func(s *wire.Conn) error {
		if err := c.readNetwork(s); err != nil {
			return err
		}
		c.readSysctls()
		c.readListeners()
		c.readTraffic(s)
		return cmp.Or(c.readPolicies(), c.readFilters(keep))
	})
	if err != nil {
		return nil, fmt.Errorf("copying the node's network: %w", err)
	}
	return c, nil
}

// Listener is an address at which a program of the node waits for packets.
type Listener struct {
	Protocol uint8 // 6 or 17
	At       netip.AddrPort
}

// readFilters reads the rules and the sets that they name.
func (c *Capture) readFilters(keep func(ports []string) map[string]bool) error {
	err := wire.With(unix.NETLINK_NETFILTER, func(s *wire.Conn) error {
		if err := c.readSets(s); err != nil {
			return fmt.Errorf("reading ip sets and counters: %w", err)
		}
		return c.readNFT(s, keep)
	})
	if err != nil {
		return err
	}
	return c.readLegacy(keep)
}
