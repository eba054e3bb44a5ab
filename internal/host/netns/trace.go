package netns

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"nodegate/internal/host/wire"
	"nodegate/internal/nlattr"
)

// Tracer traces the packets of one flow, or all of a scratch namespace, through nf_tables, and so through iptables-nft. The table that
// marks only one flow has an owner (NFT_TABLE_F_OWNER): it disappears with the tracer's socket, however the process ends.
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
	Code     int32  // of the verdict: NF_DROP, NFT_JUMP
	Target   string // of a jump
	Mark     uint32
	Out      int // index of the link
	Reply    bool
	Own      bool // the tracer's own table: the packet passed this place of a hook
}

// The verdicts of rules (include/uapi/linux/netfilter.h and netfilter/nf_tables.h).
const (
	Drop     = 0
	Accept   = 1
	Stolen   = 2
	Queue    = 3
	Continue = -1
	Jump     = -3
	Goto     = -4
	Return   = -5
)

// The places of hooks at which the tracer sees a packet: first and last of all chains.
const (
	placeFirst = "-first"
	placeLast  = "-last"
)

// Trace begins to trace a flow, or every packet if it is the zero Tuple. A flow needs Linux 5.12.
func (n *Namespace) Trace(ctx context.Context, flow Tuple) (*Tracer, error) {
	t := &Tracer{n: n, table: &nftables.Table{Name: fmt.Sprintf("nodegate-trace-%d", os.Getpid()), Family: nftables.TableFamilyIPv4}}
	if flow == (Tuple{}) {
		t.table.Family = nftables.TableFamilyINet
	} else if flow.To.Addr().Is6() {
		t.table.Family = nftables.TableFamilyIPv6
	}
	err := n.Do(ctx, func() error {
		var raw *netlink.Conn
		var err error
		t.rules, err = nftables.New(nftables.AsLasting(), nftables.WithSockOptions(func(c *netlink.Conn) error { raw = c; return nil }))
		if err != nil {
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
		if flow == (Tuple{}) {
			t.rules.AddTable(t.table)
		} else if err := createOwned(raw, t.table); err != nil {
			return err
		}
		t.addChains(flow)
		return t.rules.Flush()
	})
	if err != nil {
		t.Close()
		return nil, fmt.Errorf("tracing needs CAP_NET_ADMIN, nf_tables and Linux 5.12: %w", err)
	}
	return t, nil
}

// createOwned creates a table that belongs to the socket.
func createOwned(c *netlink.Conn, t *nftables.Table) error {
	const owner = 2 // NFT_TABLE_F_OWNER
	attributes := slices.Concat(wire.Attribute(unix.NFTA_TABLE_NAME, []byte(t.Name), []byte{0}),
		wire.Attribute(unix.NFTA_TABLE_FLAGS, binary.BigEndian.AppendUint32(nil, owner)))
	message := func(kind netlink.HeaderType, flags netlink.HeaderFlags, family byte, resource uint16, data []byte) netlink.Message {
		header := binary.BigEndian.AppendUint16([]byte{family, unix.NFNETLINK_V0}, resource)
		return netlink.Message{Header: netlink.Header{Type: kind, Flags: netlink.Request | flags}, Data: append(header, data...)}
	}
	_, err := c.SendMessages([]netlink.Message{
		message(unix.NFNL_MSG_BATCH_BEGIN, 0, 0, unix.NFNL_SUBSYS_NFTABLES, nil),
		message(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWTABLE, netlink.Acknowledge|netlink.Create|netlink.Excl, byte(t.Family), 0,
			attributes),
		message(unix.NFNL_MSG_BATCH_END, 0, 0, unix.NFNL_SUBSYS_NFTABLES, nil),
	})
	if err == nil {
		_, err = c.Receive()
	}
	return err
}

// addChains adds the rules that mark the flow's packets, and the chains that show which hooks they pass.
func (t *Tracer) addChains(flow Tuple) {
	hooks := map[string]*nftables.ChainHook{"prerouting": nftables.ChainHookPrerouting, "input": nftables.ChainHookInput,
		"forward": nftables.ChainHookForward, "output": nftables.ChainHookOutput, "postrouting": nftables.ChainHookPostrouting}
	add := func(hook, place string, at nftables.ChainPriority) *nftables.Chain {
		return t.rules.AddChain(&nftables.Chain{Name: hook + place, Table: t.table, Type: nftables.ChainTypeFilter, Hooknum: hooks[hook],
			Priority: &at})
	}
	for hook := range hooks {
		if flow == (Tuple{}) {
			if hook == "prerouting" || hook == "output" {
				t.addRule(add(hook, placeFirst, -450), nil)
			}
			continue
		}
		first := add(hook, placeFirst, -390) // behind the reassembly of fragments
		add(hook, placeLast, 1000)
		if hook != "prerouting" && hook != "output" {
			t.addRule(first, flow.matchConntrack()) // a bridge takes the mark from the packets to its own address
			continue
		}
		reply := Tuple{Proto: flow.Proto, From: flow.To, To: flow.From}
		t.addRule(first, flow.match(true))
		t.addRule(first, reply.match(false))                            // of an endpoint, unless the client was masqueraded
		t.addRule(add(hook, "-conntrack", -190), flow.matchConntrack()) // of an endpoint
	}
}

func (t *Tracer) addRule(c *nftables.Chain, match []expr.Any) {
	t.rules.AddRule(&nftables.Rule{Table: t.table, Chain: c, Exprs: append(match,
		&expr.Immediate{Register: 1, Data: []byte{1}}, &expr.Meta{Key: expr.MetaKeyNFTRACE, SourceRegister: true, Register: 1})})
}

// match matches packets from From to To, by the source too if wanted.
func (f Tuple) match(source bool) []expr.Any {
	at, size := uint32(12), uint32(4)
	if f.To.Addr().Is6() {
		at, size = 8, 16
	}
	number := func(p uint16) []byte { return binary.BigEndian.AppendUint16(nil, p) }
	field := func(base expr.PayloadBase, at, size uint32, want []byte) []expr.Any {
		return []expr.Any{&expr.Payload{DestRegister: 1, Base: base, Offset: at, Len: size}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: want}}
	}
	list := []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{f.Proto}}}
	list = append(list, field(expr.PayloadBaseNetworkHeader, at+size, size, f.To.Addr().AsSlice())...)
	if source {
		list = append(list, field(expr.PayloadBaseNetworkHeader, at, size, f.From.Addr().AsSlice())...)
		list = append(list, field(expr.PayloadBaseTransportHeader, 0, 2, number(f.From.Port()))...)
	}
	return append(list, field(expr.PayloadBaseTransportHeader, 2, 2, number(f.To.Port()))...)
}

// matchConntrack matches packets of both directions by the ports of the flow's first packet.
func (f Tuple) matchConntrack() []expr.Any {
	number := func(p uint16) []byte { return binary.BigEndian.AppendUint16(nil, p) }
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{f.Proto}},
		&expr.Ct{Key: expr.CtKeyPROTOSRC, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: number(f.From.Port())},
		&expr.Ct{Key: expr.CtKeyPROTODST, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: number(f.To.Port())},
	}
}

// Events returns the events until no more come for quiet. Events of other traces are left out.
func (t *Tracer) Events(ctx context.Context, flow Tuple, quiet time.Duration) ([]TraceEvent, error) {
	var all []TraceEvent
	var failed error
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
			if e, err := t.read(m.Data, flow, all); err == nil {
				all = append(all, e)
			}
		}
	}
	ours := map[uint32]bool{}
	for _, e := range all {
		ours[e.Packet] = ours[e.Packet] || e.Own
	}
	list := slices.DeleteFunc(all, func(e TraceEvent) bool { return !ours[e.Packet] && flow != Tuple{} })
	return list, errors.Join(failed, t.locate(ctx, list))
}

// read decodes an event.
func (t *Tracer) read(b []byte, flow Tuple, before []TraceEvent) (e TraceEvent, err error) {
	var a [unix.NFTA_TRACE_POLICY + 1][]byte
	if err := nlattr.Split(b[4:], a[:]); err != nil {
		return e, err
	}
	number := func(kind int) uint32 {
		if len(a[kind]) == 4 {
			return binary.BigEndian.Uint32(a[kind])
		}
		return 0
	}
	text := func(b []byte) string { return strings.TrimRight(string(b), "\x00") }
	e = TraceEvent{Packet: number(unix.NFTA_TRACE_ID), Family: b[0], Table: text(a[unix.NFTA_TRACE_TABLE]),
		Chain: text(a[unix.NFTA_TRACE_CHAIN]),
		Mark:  number(unix.NFTA_TRACE_MARK), Out: int(number(unix.NFTA_TRACE_OIF))}
	if handle := a[unix.NFTA_TRACE_RULE_HANDLE]; len(handle) == 8 {
		e.Handle = binary.BigEndian.Uint64(handle)
	}
	var v [3][]byte
	if err := nlattr.Split(a[unix.NFTA_TRACE_VERDICT], v[:]); err != nil {
		return e, err
	}
	if len(v[unix.NFTA_VERDICT_CODE]) == 4 {
		e.Code, e.Target = int32(binary.BigEndian.Uint32(v[unix.NFTA_VERDICT_CODE])), text(v[unix.NFTA_VERDICT_CHAIN])
	}
	if a[unix.NFTA_TRACE_POLICY] != nil {
		e.Code = int32(number(unix.NFTA_TRACE_POLICY))
	}
	e.Own = e.Table == t.table.Name
	if ports := a[unix.NFTA_TRACE_TRANSPORT_HEADER]; len(ports) >= 4 { // of the first event in a base chain
		e.Reply = binary.BigEndian.Uint16(ports) != flow.From.Port()
		return e, nil
	}
	for _, o := range slices.Backward(before) {
		if o.Packet == e.Packet {
			e.Reply = o.Reply
			break
		}
	}
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
		if t.table.Family == nftables.TableFamilyINet { // without an owner
			t.rules.DelTable(t.table)
			_ = t.rules.Flush()
		}
		_ = t.rules.CloseLasting()
	}
	if t.events != nil {
		_ = t.events.Close()
	}
}

// Place returns the hook and place of an event of the tracer's own table, such as "forward" and whether it is the last one.
func (e *TraceEvent) Place() (hook string, last, is bool) {
	hook, last = strings.CutSuffix(e.Chain, placeLast)
	if !last {
		hook, is = strings.CutSuffix(e.Chain, placeFirst)
	}
	return hook, last, e.Own && (last || is)
}

// FamilyName returns a family of nf_tables (NFPROTO_ of include/uapi/linux/netfilter.h) as nft prints it, or "".
func FamilyName(family byte) string {
	return map[byte]string{1: "inet", 2: "ip", 3: "arp", 5: "netdev", 7: "bridge", 10: "ip6"}[family]
}
