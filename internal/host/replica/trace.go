package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// traceTable is the table that marks packets for the trace.
const traceTable = "nodegate-trace"

// Trace calls send, and returns the part that lost a packet in the meantime according to nf_tables' trace: an index of Capture.Parts.
// ok is false if the trace shows no such part.
func (r *Replica) Trace(ctx context.Context, send func()) (part int, ok bool, err error) {
	if len(r.Capture.NFT) == 0 {
		return 0, false, nil
	}
	var s, events *wire
	err = r.Node.Do(ctx, func() (err error) {
		if s, err = open(unix.NETLINK_NETFILTER); err != nil {
			return err
		}
		if events, err = open(unix.NETLINK_NETFILTER); err != nil {
			return err
		}
		const group = 9 // NFNLGRP_NFTRACE
		_ = unix.SetsockoptInt(events.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4<<20)
		if err := unix.SetsockoptInt(events.fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, group); err != nil {
			return err
		}
		_, err = s.commit(traceUnits())
		return err
	})
	for _, one := range []*wire{s, events} {
		if one != nil {
			defer one.close()
		}
	}
	if err != nil {
		return 0, false, fmt.Errorf("tracing: %w", err)
	}
	defer func() {
		_, failed := s.commit([]Unit{{Messages: []Message{{Kind: unix.NFT_MSG_DELTABLE, Family: unix.NFPROTO_INET,
			Payload: text(unix.NFTA_TABLE_NAME, traceTable)}}}})
		err = errors.Join(err, failed)
	}()
	send()
	_ = unix.SetsockoptTimeval(events.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: int64(time.Millisecond / time.Microsecond)})
	part = -1
	last := map[uint32]traceEvent{} // of each packet, if its verdict may be the end
	var order []uint32
	for {
		_, err := events.receive(func(_ uint32, kind, _ uint16, data []byte) (bool, error) {
			if kind != unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_TRACE || len(data) < netfilterHeader {
				return false, nil
			}
			e := readTrace(data)
			if e.chain.table == traceTable {
				return false, nil
			}
			if e.verdict < 0 {
				delete(last, e.packet)
				return false, nil
			}
			if _, known := last[e.packet]; !known {
				order = append(order, e.packet)
			}
			last[e.packet] = e
			return false, nil
		})
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil && !errors.Is(err, unix.ENOBUFS) {
			return 0, false, err
		}
	}
	const drop, stolen, queue = 0, 2, 3
	for _, packet := range order {
		e, is := last[packet]
		if verdict := e.verdict & 0xff; !is || verdict != drop && verdict != stolen && verdict != queue {
			continue
		}
		if part, ok = r.partOf(s, &e); ok {
			return part, true, nil
		}
	}
	return 0, false, nil
}

type traceEvent struct {
	packet  uint32
	chain   chainID
	handle  []byte // nil for the policy of a chain
	verdict int32
}

func readTrace(data []byte) traceEvent {
	a := attributes(data[netfilterHeader:], unix.NFTA_TRACE_POLICY)
	e := traceEvent{packet: uint32Of(a[unix.NFTA_TRACE_ID]), handle: bytes.Clone(a[unix.NFTA_TRACE_RULE_HANDLE]),
		chain: chainID{data[0], name(a[unix.NFTA_TRACE_TABLE]), name(a[unix.NFTA_TRACE_CHAIN])}}
	e.verdict = int32(uint32Of(attributes(a[unix.NFTA_TRACE_VERDICT], 2)[unix.NFTA_VERDICT_CODE]))
	if policy := a[unix.NFTA_TRACE_POLICY]; policy != nil {
		e.handle, e.verdict = nil, int32(uint32Of(policy))
	}
	return e
}

// partOf finds the part of an event: the rules of the copy are in the order in which they were loaded.
func (r *Replica) partOf(s *wire, e *traceEvent) (part int, ok bool) {
	if e.handle == nil {
		part = slices.IndexFunc(r.Capture.Parts, func(p Part) bool {
			return p.Kind == PartPolicy && !p.Legacy && p.Family == e.chain.family && p.Table == e.chain.table && p.Chain == e.chain.name
		})
		return part, part >= 0
	}
	rules, err := s.dump(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETRULE, nfnetlink(e.chain.family,
		text(unix.NFTA_RULE_TABLE, e.chain.table), text(unix.NFTA_RULE_CHAIN, e.chain.name)))
	parts := r.Parts(e.chain.family, e.chain.table, e.chain.name)
	if err != nil || len(parts) != len(rules) {
		return 0, false
	}
	for i, rule := range rules {
		if bytes.Equal(attributes(rule[netfilterHeader:], unix.NFTA_RULE_HANDLE)[unix.NFTA_RULE_HANDLE], e.handle) {
			return parts[i], true
		}
	}
	return 0, false
}

// traceUnits returns a table that marks every packet before other rules see it.
func traceUnits() []Unit {
	add := func(kind, flags uint16, attributes ...[]byte) Unit {
		return Unit{Messages: []Message{{kind, flags, unix.NFPROTO_INET, bytes.Join(attributes, nil)}}}
	}
	expression := func(name string, data ...[]byte) []byte {
		return attribute(unix.NFTA_LIST_ELEM|unix.NLA_F_NESTED, text(unix.NFTA_EXPR_NAME, name),
			attribute(unix.NFTA_EXPR_DATA|unix.NLA_F_NESTED, data...))
	}
	const register, before = 1, -450
	units := []Unit{add(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, text(unix.NFTA_TABLE_NAME, traceTable))}
	for chain, hook := range map[string]uint32{"prerouting": unix.NF_INET_PRE_ROUTING, "output": unix.NF_INET_LOCAL_OUT} {
		at := before
		units = append(units,
			add(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, text(unix.NFTA_CHAIN_TABLE, traceTable), text(unix.NFTA_CHAIN_NAME, chain),
				attribute(unix.NFTA_CHAIN_HOOK|unix.NLA_F_NESTED, network(unix.NFTA_HOOK_HOOKNUM, hook), network(unix.NFTA_HOOK_PRIORITY, uint32(at))),
				text(unix.NFTA_CHAIN_TYPE, "filter")),
			add(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE, text(unix.NFTA_RULE_TABLE, traceTable), text(unix.NFTA_RULE_CHAIN, chain),
				attribute(unix.NFTA_RULE_EXPRESSIONS|unix.NLA_F_NESTED,
					expression("immediate", network(unix.NFTA_IMMEDIATE_DREG, register),
						attribute(unix.NFTA_IMMEDIATE_DATA|unix.NLA_F_NESTED, attribute(unix.NFTA_DATA_VALUE, []byte{1}))),
					expression("meta", network(unix.NFTA_META_KEY, unix.NFT_META_NFTRACE), network(unix.NFTA_META_SREG, register)))))
	}
	return units
}
