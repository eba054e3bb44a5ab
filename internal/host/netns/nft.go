package netns

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Redirect is an active redirection, in a table of its own, so that one delete removes it.
type Redirect struct {
	n     *Namespace
	table *nftables.Table
	ways  []*nftables.Chain // prerouting, forward, postrouting; rules: request, reply
	dnat  *nftables.Chain
}

// AddRedirect creates the redirection. It needs CAP_NET_ADMIN, and a kernel with nf_tables.
func (n *Namespace) AddRedirect(ctx context.Context, spec RedirectSpec) (*Redirect, error) {
	r := &Redirect{n: n, table: &nftables.Table{Name: spec.Name, Family: nftables.TableFamilyIPv4}}
	err := n.Do(ctx, func() error {
		conn, err := nftables.New()
		if err != nil {
			return err
		}
		conn.CreateTable(r.table)
		for _, w := range []struct {
			name     string
			hook     *nftables.ChainHook
			priority nftables.ChainPriority
			request  netip.AddrPort
		}{
			// Before raw and conntrack; the others see the translated request.
			{"prerouting", nftables.ChainHookPrerouting, -310, spec.Service},
			{"forward", nftables.ChainHookForward, -310, spec.Endpoint},
			{"postrouting", nftables.ChainHookPostrouting, 90, spec.Endpoint},
		} {
			chain := conn.AddChain(&nftables.Chain{Name: w.name, Table: r.table, Type: nftables.ChainTypeFilter,
				Hooknum: w.hook, Priority: &w.priority})
			r.ways = append(r.ways, chain)
			conn.AddRule(&nftables.Rule{Table: r.table, Chain: chain, Exprs: append(matchTo(w.request), &expr.Counter{})})
			conn.AddRule(&nftables.Rule{Table: r.table, Chain: chain, Exprs: append(matchFrom(spec.Endpoint), &expr.Counter{})})
		}
		r.dnat = conn.AddChain(&nftables.Chain{Name: "dnat", Table: r.table, Type: nftables.ChainTypeNAT,
			Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityNATDest})
		conn.AddRule(&nftables.Rule{Table: r.table, Chain: r.dnat, Exprs: append(matchTo(spec.Service),
			&expr.Counter{},
			&expr.Immediate{Register: 1, Data: spec.Endpoint.Addr().AsSlice()},
			&expr.Immediate{Register: 2, Data: port(spec.Endpoint)},
			&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1, RegProtoMin: 2})})
		// A translation to the same address counts as a translation: the kernel consults no later
		// chain. Also, before Linux 4.18 a reply is translated back only if POSTROUTING has a nat
		// chain too.
		early := *nftables.ChainPriorityNATSource - 1
		keep := conn.AddChain(&nftables.Chain{Name: "snat", Table: r.table, Type: nftables.ChainTypeNAT,
			Hooknum: nftables.ChainHookPostrouting, Priority: &early})
		conn.AddRule(&nftables.Rule{Table: r.table, Chain: keep, Exprs: append(matchTo(spec.Endpoint),
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 12, Len: 4},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: spec.Client.AsSlice()},
			&expr.Immediate{Register: 1, Data: spec.Client.AsSlice()},
			&expr.NAT{Type: expr.NATTypeSourceNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1})})
		return conn.Flush()
	})
	if err != nil {
		return nil, wrap("creating nftables table", spec.Name, err)
	}
	return r, nil
}

// matchTo and matchFrom match TCP to and from an address and port. The four
// bytes at 12 and 16 of an IPv4 header are its source and destination.
func matchTo(a netip.AddrPort) []expr.Any   { return match(a, 16, 2) }
func matchFrom(a netip.AddrPort) []expr.Any { return match(a, 12, 0) }

func match(a netip.AddrPort, addrAt, portAt uint32) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: addrAt, Len: 4},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: a.Addr().AsSlice()},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: portAt, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: port(a)},
	}
}

func port(a netip.AddrPort) []byte { return binary.BigEndian.AppendUint16(nil, a.Port()) }

// Hits reads the counters.
func (r *Redirect) Hits(ctx context.Context) (h Hits, err error) {
	err = r.n.Do(ctx, func() error {
		conn, err := nftables.New()
		if err != nil {
			return err
		}
		var counts []uint64
		for _, chain := range append(r.ways, r.dnat) {
			rules, err := conn.GetRules(r.table, chain)
			if err != nil {
				return err
			}
			for _, rule := range rules {
				for _, e := range rule.Exprs {
					if c, ok := e.(*expr.Counter); ok {
						counts = append(counts, c.Packets)
					}
				}
			}
		}
		h, err = newHits(counts)
		return err
	})
	return h, wrap("reading the counters of nftables table", r.table.Name, err)
}

// newHits expects the counters in the order of their creation: request and reply in each of three
// hooks, then the translation.
func newHits(c []uint64) (Hits, error) {
	if len(c) != 7 {
		return Hits{}, fmt.Errorf("found %d of 7 counters: another program has changed the rules", len(c))
	}
	return Hits{
		Request:    Way{Prerouting: c[0], Forward: c[2], Postrouting: c[4]},
		Reply:      Way{Prerouting: c[1], Forward: c[3], Postrouting: c[5]},
		Translated: c[6],
	}, nil
}
