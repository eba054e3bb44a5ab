package replica

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/wire"
	"nodegate/internal/host/xtables"
)

// Again captures the copy, as the node would be after the same changes. A link has the kind for which it stands. keep is as in Read.
func (r *Replica) Again(ctx context.Context, keep func(ports []string) map[string]bool) (*Capture, error) {
	c, err := ReadIn(ctx, r.Node, keep)
	if err != nil {
		return nil, err
	}
	for i := range r.Capture.Links {
		was := &r.Capture.Links[i]
		if at := slices.IndexFunc(c.Links, func(l Link) bool { return l.Index == r.index[was.Index] }); at >= 0 {
			l := &c.Links[at]
			l.Kind, l.Data, l.SlaveKind, l.SlaveData = was.Kind, was.Data, was.SlaveKind, was.SlaveData
		}
	}
	c.Neighbours = nil
	for _, n := range r.Capture.Neighbours {
		if n.Link = r.index[n.Link]; n.Link != 0 {
			c.Neighbours = append(c.Neighbours, n)
		}
	}
	c.Listeners = append(c.Listeners, r.Capture.Listeners...)
	return c, nil
}

// Set sets a sysctl of the copy of the node.
func (r *Replica) Set(ctx context.Context, key, value string) error {
	return r.Node.Do(ctx, func() error { return write(key, value) })
}

// Rewrite writes the rules of kube-proxy and kubelet that the capture has into the copy, as both do within half a minute: their chains
// again, and the jumps to them that the copy lacks now before all rules. Tables of the legacy backend cannot be mixed: they must be
// as in the capture but for these rules.
func (r *Replica) Rewrite(ctx context.Context, now *Capture) error {
	return r.Node.Do(ctx, func() error {
		for i := range r.Capture.Legacy {
			if err := r.Capture.rewriteLegacy(&r.Capture.Legacy[i], now); err != nil {
				return err
			}
		}
		if !slices.ContainsFunc(r.Capture.NFT, func(u Unit) bool { return u.Part >= 0 && r.Capture.Parts[u.Part].Own }) {
			return nil
		}
		return wire.With(unix.NETLINK_NETFILTER, func(s *wire.Conn) error {
			if _, err := commit(s, r.Capture.own(now)); err != nil {
				return fmt.Errorf("writing kube-proxy's rules again: %w", err)
			}
			return nil
		})
	})
}

func (c *Capture) rewriteLegacy(l *Legacy, now *Capture) error {
	foreign := func(l *Legacy, parts []Part) string {
		var b strings.Builder
		l.fingerprint(b.Write, parts)
		return b.String()
	}
	at := slices.IndexFunc(now.Legacy, func(o Legacy) bool { return o.IPv6 == l.IPv6 && o.Name == l.Name })
	if at >= 0 && foreign(l, c.Parts) != foreign(&now.Legacy[at], now.Parts) {
		return fmt.Errorf("the table %s of the legacy backend has both kube-proxy's and other new rules", l.Name)
	}
	return xtables.Replace(&l.Table)
}

// Hop returns the machine and link to which the copy of the node sends packets for an address now, as the kernel says; "" without a route.
func (r *Replica) Hop(ctx context.Context, to netip.Addr) (hop string) {
	_ = r.Node.Netlink(ctx, unix.NETLINK_ROUTE, func(s *wire.Conn) error {
		answers, err := s.Ask(unix.RTM_GETROUTE, 0, slices.Concat(routeHeader(family(to), byte(to.BitLen()), 0, 0),
			attribute(unix.RTA_DST, to.AsSlice())))
		for _, m := range answers {
			a := attributes(m[unix.SizeofRtMsg:], unix.RTA_GATEWAY)
			via, _ := netip.AddrFromSlice(a[unix.RTA_GATEWAY])
			link, _ := net.InterfaceByIndex(intOf(a[unix.RTA_OIF]))
			if link != nil && via.IsValid() {
				hop = fmt.Sprintf("%s by %s", via, link.Name)
			} else if link != nil {
				hop = "itself by " + link.Name
			}
		}
		return err
	})
	return hop
}

// own returns the units that write kube-proxy's and kubelet's rules again.
func (c *Capture) own(now *Capture) (all []Unit) {
	type place struct {
		family      byte
		table, name string
	}
	tables, chains := map[place]bool{}, map[place]bool{}
	for _, p := range c.Parts {
		if p.Own && p.Kind == PartRule && !p.Legacy {
			tables[place{p.Family, p.Table, ""}], chains[place{p.Family, p.Table, p.Chain}] = true, true
		}
	}
	there := func(p Part) bool {
		return slices.ContainsFunc(now.Parts, func(o Part) bool {
			return o.Own && !o.Legacy && o.Family == p.Family && o.Table == p.Table && o.Chain == p.Chain && o.Target == p.Target
		})
	}
	var jumps []Unit
	for _, u := range c.NFT {
		if len(u.Messages) == 0 {
			continue
		}
		m := u.Messages[len(u.Messages)-1]
		a := attributes(m.Payload, unix.NFTA_CHAIN_NAME)
		table, chain := name(a[unix.NFTA_CHAIN_TABLE]), name(a[unix.NFTA_CHAIN_NAME])
		own := tables[place{m.Family, table, ""}]
		switch {
		case m.Kind == unix.NFT_MSG_NEWTABLE && own:
			all = append(all, u)
			if table == kubeProxy { // kube-proxy's alone
				all = append(all, Unit{Messages: []Message{{Kind: unix.NFT_MSG_DELTABLE, Family: m.Family,
					Payload: text(unix.NFTA_TABLE_NAME, table)}}}, u)
			}
		case own && table == kubeProxy:
			all = append(all, u)
		case m.Kind == unix.NFT_MSG_NEWCHAIN && (own && isOwn(table, chain) || chains[place{m.Family, table, chain}]):
			// Its policy is another program's.
			m.Payload = filter(m.Payload, func(kind int) bool { return kind != unix.NFTA_CHAIN_POLICY })
			all = append(all, Unit{Messages: []Message{m}})
			if isOwn(table, chain) {
				all = append(all, Unit{Messages: []Message{{Kind: unix.NFT_MSG_DELRULE, Family: m.Family,
					Payload: slices.Concat(text(unix.NFTA_RULE_TABLE, table), text(unix.NFTA_RULE_CHAIN, chain))}}})
			}
		case m.Kind != unix.NFT_MSG_NEWRULE || u.Part < 0 || !c.Parts[u.Part].Own:
		case isOwn(table, c.Parts[u.Part].Chain):
			all = append(all, u)
		case !there(c.Parts[u.Part]):
			m.Flags &^= unix.NLM_F_APPEND
			jumps = append(jumps, Unit{Messages: append(slices.Clone(u.Messages[:len(u.Messages)-1]), m)})
		}
	}
	slices.Reverse(jumps) // each comes before the last one
	return append(all, jumps...)
}
