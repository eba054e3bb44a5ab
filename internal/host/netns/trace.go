package netns

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"nodegate/internal/nlattr"
)

// Tracer traces every packet of a scratch namespace through nf_tables, and so through iptables-nft.
type Tracer struct {
	n      *Namespace
	rules  *nftables.Conn
	events *netlink.Conn
	table  *nftables.Table
}

// TraceEvent is one decision about a packet (NFT_MSG_TRACE of include/uapi/linux/netfilter/nf_tables.h).
type TraceEvent struct {
	Packet   uint32 // the same for all events of a packet
	Family   byte   // of the table
	Table    string
	Chain    string
	Handle   uint64 // of the rule; 0 for the policy of a chain
	Position int    // of the rule in its chain, from 1; 0 if it is not known
	Code     int32  // of the verdict: Accept; negative if the packet continues in another rule
	Own      bool   // the tracer's own table
}

// Accept is the verdict with which a packet passes a chain (include/uapi/linux/netfilter.h).
const Accept = 1

// Trace begins to trace.
func (n *Namespace) Trace(ctx context.Context) (*Tracer, error) {
	t := &Tracer{n: n, table: &nftables.Table{Name: fmt.Sprintf("nodegate-trace-%d", os.Getpid()), Family: nftables.TableFamilyINet}}
	err := n.Do(ctx, func() error {
		var err error
		if t.rules, err = nftables.New(nftables.AsLasting()); err != nil {
			return err
		}
		if t.events, err = netlink.Dial(unix.NETLINK_NETFILTER, nil); err != nil {
			return err
		}
		const events = 9 // NFNLGRP_NFTRACE
		_ = errors.Join(t.events.SetReadBuffer(4<<20), t.events.SetOption(netlink.NoENOBUFS, true))
		if err := t.events.JoinGroup(events); err != nil {
			return err
		}
		t.rules.AddTable(t.table)
		for name, hook := range map[string]*nftables.ChainHook{"prerouting": nftables.ChainHookPrerouting, "output": nftables.ChainHookOutput} {
			first := nftables.ChainPriority(-450)
			chain := t.rules.AddChain(&nftables.Chain{Name: name, Table: t.table, Type: nftables.ChainTypeFilter, Hooknum: hook, Priority: &first})
			t.rules.AddRule(&nftables.Rule{Table: t.table, Chain: chain, Exprs: []expr.Any{
				&expr.Immediate{Register: 1, Data: []byte{1}}, &expr.Meta{Key: expr.MetaKeyNFTRACE, SourceRegister: true, Register: 1}}})
		}
		return t.rules.Flush()
	})
	if err != nil {
		t.Close()
		return nil, fmt.Errorf("tracing needs CAP_NET_ADMIN and nf_tables: %w", err)
	}
	return t, nil
}

// Events returns the events until no more come for quiet.
func (t *Tracer) Events(ctx context.Context, quiet time.Duration) (all []TraceEvent, failed error) {
	for ctx.Err() == nil {
		_ = t.events.SetReadDeadline(time.Now().Add(quiet))
		messages, err := t.events.Receive()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			failed = fmt.Errorf("reading the kernel's trace: %w", err)
			break
		}
		for _, m := range messages {
			if m.Header.Type != unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_TRACE || len(m.Data) < 4 {
				continue
			}
			if e, err := t.read(m.Data); err == nil {
				all = append(all, e)
			}
		}
	}
	return all, errors.Join(failed, t.locate(ctx, all))
}

// read decodes an event.
func (t *Tracer) read(b []byte) (e TraceEvent, err error) {
	var a [unix.NFTA_TRACE_POLICY + 1][]byte
	if err := nlattr.Split(b[4:], a[:]); err != nil {
		return e, err
	}
	number := func(b []byte) uint32 {
		if len(b) == 4 {
			return binary.BigEndian.Uint32(b)
		}
		return 0
	}
	text := func(b []byte) string { return strings.TrimRight(string(b), "\x00") }
	e = TraceEvent{Packet: number(a[unix.NFTA_TRACE_ID]), Family: b[0], Table: text(a[unix.NFTA_TRACE_TABLE]),
		Chain: text(a[unix.NFTA_TRACE_CHAIN])}
	if handle := a[unix.NFTA_TRACE_RULE_HANDLE]; len(handle) == 8 {
		e.Handle = binary.BigEndian.Uint64(handle)
	}
	var v [3][]byte
	if err := nlattr.Split(a[unix.NFTA_TRACE_VERDICT], v[:]); err != nil {
		return e, err
	}
	e.Code = int32(number(v[unix.NFTA_VERDICT_CODE]))
	if a[unix.NFTA_TRACE_POLICY] != nil {
		e.Code = int32(number(a[unix.NFTA_TRACE_POLICY]))
	}
	e.Own = e.Table == t.table.Name
	return e, nil
}

// locate adds the positions of the rules.
func (t *Tracer) locate(ctx context.Context, list []TraceEvent) error {
	type place struct {
		family       byte
		table, chain string
	}
	known := map[place]map[uint64]int{}
	return t.n.Do(ctx, func() error {
		for i := range list {
			e := &list[i]
			at := place{e.Family, e.Table, e.Chain}
			if known[at] == nil && !e.Own {
				known[at] = map[uint64]int{}
				query := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP)
				query.AddData(&nl.Nfgenmsg{NfgenFamily: e.Family, Version: nl.NFNETLINK_V0})
				query.AddData(nl.NewRtAttr(unix.NFTA_RULE_TABLE, nl.ZeroTerminated(e.Table)))
				query.AddData(nl.NewRtAttr(unix.NFTA_RULE_CHAIN, nl.ZeroTerminated(e.Chain)))
				rules, _ := query.Execute(unix.NETLINK_NETFILTER, 0) // without, the handle must do
				for n, r := range rules {
					var a [unix.NFTA_RULE_HANDLE + 1][]byte
					if _ = nlattr.Split(r[min(4, len(r)):], a[:]); len(a[unix.NFTA_RULE_HANDLE]) == 8 {
						known[at][binary.BigEndian.Uint64(a[unix.NFTA_RULE_HANDLE])] = n + 1
					}
				}
			}
			e.Position = known[at][e.Handle]
		}
		return nil
	})
}

// Close removes the table.
func (t *Tracer) Close() {
	if t.rules != nil {
		t.rules.DelTable(t.table)
		_ = t.rules.Flush()
		_ = t.rules.CloseLasting()
	}
	if t.events != nil {
		_ = t.events.Close()
	}
}

// FamilyName returns a family of nf_tables (NFPROTO_ of include/uapi/linux/netfilter.h) as nft prints it, or "".
func FamilyName(family byte) string {
	return map[byte]string{1: "inet", 2: "ip", 3: "arp", 5: "netdev", 7: "bridge", 10: "ip6"}[family]
}
