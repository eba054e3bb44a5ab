package replica

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/wire"
	"nodegate/internal/host/xtables"
)

// transaction bounds the bytes of one transaction: in a user namespace the buffer of a socket cannot be made larger.
const transaction = 180_000

// Load replaces the rules of the copy by the node's without some parts: indexes of Capture.Parts.
func (r *Replica) Load(ctx context.Context, without map[int]bool) error {
	err := r.Node.Netlink(ctx, unix.NETLINK_ROUTE, func(s *wire.Conn) error { return r.loadRouting(s, without, false) })
	if err == nil && slices.ContainsFunc(r.Capture.Parts, func(p Part) bool { return p.Kind == PartIPsec }) {
		err = r.Node.Netlink(ctx, unix.NETLINK_XFRM, func(s *wire.Conn) error { return r.loadRouting(s, without, true) })
	}
	if err == nil && len(r.Capture.NFT) > 0 {
		err = r.Node.Netlink(ctx, unix.NETLINK_NETFILTER, func(s *wire.Conn) error { return r.loadNFT(s, without) })
	}
	if err == nil {
		err = r.Node.Do(ctx, func() error { return r.loadLegacy(without) })
	}
	if err != nil {
		return err
	}
	return r.Forget(ctx)
}

// Forget removes the neighbours that all have learnt: a flow may have been lost because it could learn nothing, and the kernel asks again
// only after a second.
func (r *Replica) Forget(ctx context.Context) error {
	for _, e := range r.Ends {
		if err := e.Namespace.Netlink(ctx, unix.NETLINK_ROUTE, forgetNeighbours); err != nil {
			return err
		}
	}
	return r.Node.Netlink(ctx, unix.NETLINK_ROUTE, forgetNeighbours)
}

func forgetNeighbours(s *wire.Conn) error {
	all, err := s.Dump(unix.RTM_GETNEIGH, make([]byte, unix.SizeofNdMsg))
	for _, m := range all {
		if len(m) >= unix.SizeofNdMsg && binary.NativeEndian.Uint16(m[8:])&(unix.NUD_PERMANENT|unix.NUD_NOARP) == 0 {
			_, _ = s.Ask(unix.RTM_DELNEIGH, 0, slices.Concat(m[:unix.SizeofNdMsg],
				attribute(unix.NDA_DST, attributes(m[unix.SizeofNdMsg:], unix.NDA_DST)[unix.NDA_DST])))
		}
	}
	return err
}

func (r *Replica) loadSets(s *wire.Conn) error {
	for i, m := range r.Capture.Sets {
		_, err := s.Ask(r.Capture.Subsystems[i]<<8|m.Kind, m.Flags, nfnetlink(m.Family, m.Payload))
		r.refuse(fmt.Sprintf("set or counter %s", name(attributes(m.Payload, ipsetName)[ipsetName])), err)
	}
	return nil
}

// unused is a hardware address that no end has.
var unused = []byte{2, 0, 0, 0, 0, 1}

// loadRouting lets the copy forward, and removes the routing rules, routes, silent next hops and parts of tc that are left out now. It adds
// those that were left out before. By a socket of IPsec it does so for policies.
func (r *Replica) loadRouting(s *wire.Conn, without map[int]bool, ipsec bool) error {
	for i := range r.Capture.Parts {
		p := &r.Capture.Parts[i]
		if without[i] == r.absent[i] || ipsec != (p.Kind == PartIPsec) {
			continue
		}
		var create, remove uint16
		var messages [][]byte
		switch p.Kind {
		case PartSysctl:
			r.absent[i] = without[i]
			key := string(p.Message)
			if err := write(key, map[bool]string{false: r.Capture.Sysctls[key], true: p.To}[without[i]]); err != nil {
				return err
			}
		case PartRoutingRule:
			create, remove, messages = unix.RTM_NEWRULE, unix.RTM_DELRULE, [][]byte{ruleMessage(p.Message)}
		case PartRoute:
			create, remove, messages = unix.RTM_NEWROUTE, unix.RTM_DELROUTE, [][]byte{r.routeMessage(p.Message)}
		case PartNextHop:
			message := neighbour(r.index[intOf(p.Message[4:8])], netip.MustParseAddr(p.To), unused)
			create, remove, messages = unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH, [][]byte{message}
		case PartFilter:
			create, remove, messages = unix.RTM_NEWTFILTER, unix.RTM_DELTFILTER, r.traffic(p)
		case PartIPsec:
			create, remove, messages = setPolicy, setPolicy, [][]byte{r.policy(p, without[i])}
		}
		for _, m := range messages {
			kind, flags := create, uint16(unix.NLM_F_CREATE)
			if without[i] {
				kind, flags = remove, 0
			}
			_, err := s.Ask(kind, flags, m)
			if err == nil {
				r.absent[i] = without[i]
			} else if !without[i] && p.Entries != nil {
				r.refuse(p.String(), err)
			}
		}
	}
	return nil
}

// loadNFT creates everything in transactions. Objects that the kernel refuses are left out.
func (r *Replica) loadNFT(s *wire.Conn, without map[int]bool) error {
	flush := Unit{Part: -1, Messages: []Message{{Kind: unix.NFT_MSG_DELTABLE}}}
	r.loaded = nil
	todo := append([]Unit{flush}, r.Capture.NFT...)
	for i := range todo {
		if u := &todo[i]; u.Part >= 0 && without[u.Part] {
			u.Messages = u.Without
		}
	}
	for failures := 0; len(todo) > 0; {
		size, n := 0, 0
		for ; n < len(todo); n++ {
			more := 0
			for _, m := range todo[n].Messages {
				more += len(m.Payload) + unix.SizeofNlMsghdr + 2*netfilterHeader
			}
			if size += more; size > transaction && n > 0 {
				break
			}
		}
		refused, err := commit(s, todo[:n])
		if err != nil && refused < 0 {
			return fmt.Errorf("loading nf_tables: %w", err)
		}
		if refused >= 0 {
			if failures++; failures > 200 {
				return fmt.Errorf("loading nf_tables: the kernel refuses the copy: %w", err)
			}
			r.refuse(r.describe(&todo[refused]), err)
			r.Capture.NFT = slices.DeleteFunc(r.Capture.NFT, func(u Unit) bool {
				return len(u.Messages) > 0 && len(todo[refused].Messages) > 0 && &u.Messages[0] == &todo[refused].Messages[0]
			})
			todo = slices.Delete(todo, refused, refused+1)
			continue
		}
		r.loaded = append(r.loaded, todo[:n]...)
		todo = todo[n:]
	}
	return nil
}

func (r *Replica) describe(u *Unit) string {
	if u.Part >= 0 {
		return r.Capture.Parts[u.Part].String()
	}
	if len(u.Messages) == 0 {
		return "nf_tables"
	}
	a := attributes(u.Messages[0].Payload, 3)
	return fmt.Sprintf("nf_tables message %d of table %s: %s %s", u.Messages[0].Kind, name(a[1]), name(a[2]), name(a[3]))
}

// commit sends units as one transaction. If the kernel refuses one, it does none of them: refused is its index, else -1.
func commit(s *wire.Conn, units []Unit) (refused int, err error) {
	edge := func(b []byte, kind uint16) []byte {
		s.Number++
		return wire.Frame(b, kind, 0, s.Number, []byte{0, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES})
	}
	b := edge(nil, unix.NFNL_MSG_BATCH_BEGIN)
	first := s.Number
	owner := map[uint32]int{}
	last := 0
	for i, u := range units {
		if len(u.Messages) > 0 {
			last = i
		}
	}
	var end uint32
	for i, u := range units {
		for j, m := range u.Messages {
			s.Number++
			owner[s.Number] = i
			flags := m.Flags
			if i == last && j == len(u.Messages)-1 {
				flags |= unix.NLM_F_ACK
				end = s.Number
			}
			b = wire.Frame(b, unix.NFNL_SUBSYS_NFTABLES<<8|m.Kind, flags, s.Number, nfnetlink(m.Family, m.Payload))
		}
	}
	b = edge(b, unix.NFNL_MSG_BATCH_END)
	_ = unix.SetsockoptInt(s.FD, unix.SOL_SOCKET, unix.SO_SNDBUF, 2*len(b))
	if err := s.Send(b); err != nil {
		return -1, err
	}
	refused = -1
	for {
		done, failed := s.Receive(func(number uint32, kind, _ uint16, data []byte) (bool, error) {
			if number < first || kind != unix.NLMSG_ERROR {
				return false, nil
			}
			if e := wire.Failure(data); e != nil && refused < 0 {
				if at, known := owner[number]; known {
					refused = at
				}
				err = e
			}
			return number == end || err != nil, nil
		})
		if failed != nil {
			return -1, errors.Join(err, failed)
		}
		if done {
			return refused, err
		}
	}
}

func (r *Replica) loadLegacy(without map[int]bool) error {
	for i := range r.Capture.Legacy {
		one := &r.Capture.Legacy[i]
		list, heads, err := entries(&one.Table)
		if err != nil {
			return err
		}
		accept := map[int]bool{}
		for at, part := range one.Parts {
			if part >= 0 && without[part] && r.Capture.Parts[part].Kind == PartPolicy {
				accept[at] = true
			}
		}
		t, err := rewrite(&one.Table, list, heads, func(at int) bool {
			return one.Parts[at] >= 0 && without[one.Parts[at]] && !accept[at]
		}, accept)
		if err != nil {
			return err
		}
		if err := xtables.Replace(&t); err != nil {
			if r.refuse("legacy", err); !errors.Is(err, os.ErrPermission) {
				continue
			}
			return err
		}
	}
	return nil
}
