package netns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/wire"
)

// Conntrack looks up single flows in the kernel's connection table over netlink: the cost of a
// lookup does not depend on the number of flows. It is safe for concurrent use.
type Conntrack struct {
	mu   sync.Mutex
	conn *wire.Conn
}

// Tuple is one direction of a flow.
type Tuple struct {
	From  netip.AddrPort `json:"from"`  // source, ip:port
	To    netip.AddrPort `json:"to"`    // destination, ip:port
	Proto uint8          `json:"proto"` // 6 TCP, 17 UDP
}

// Flow is a tracked connection. Reply has the addresses of a reply on the wire: Reply.From is the
// endpoint to which the request was sent.
type Flow struct {
	Orig      Tuple         `json:"orig"`      // the first packet's addresses
	Reply     Tuple         `json:"reply"`     // the addresses that conntrack expects in replies
	SeenReply bool          `json:"seenReply"` // a reply arrived
	SourceNAT bool          `json:"sourceNAT"` // the source is translated
	DestNAT   bool          `json:"destNAT"`   // the destination is translated
	TCPState  string        `json:"tcpState"`  // "SYN_SENT"; "" for other protocols
	Timeout   time.Duration `json:"timeoutNs"` // until the flow expires without another packet
	Began     time.Time     `json:"began"`     // zero unless net.netfilter.nf_conntrack_timestamp is 1
}

// Conntrack opens the namespace's table. A missing permission shows only at the first Lookup.
func (n *Namespace) Conntrack(ctx context.Context) (*Conntrack, error) {
	c := &Conntrack{}
	err := n.Do(ctx, func() (err error) {
		c.conn, err = wire.Open(unix.NETLINK_NETFILTER)
		return err
	})
	return c, err
}

// Close closes the socket.
func (c *Conntrack) Close() { c.conn.Close() }

// The ctnetlink messages of linux/netfilter/nfnetlink_conntrack.h.
const (
	ctGet         = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1
	ctDelete      = unix.NFNL_SUBSYS_CTNETLINK<<8 | 2
	ctGetStatsCPU = unix.NFNL_SUBSYS_CTNETLINK<<8 | 4 // one message per CPU
)

// Lookup finds a flow in zone 0 by its original direction. The error is fs.ErrNotExist for an
// untracked flow, fs.ErrPermission if the table may not be read, and errors.ErrUnsupported if the
// kernel does not have it.
func (c *Conntrack) Lookup(t Tuple) (Flow, error) {
	answers, err := c.ask(ctGet, t)
	if err == nil && len(answers) == 0 {
		err = fs.ErrNotExist
	}
	if err != nil {
		return Flow{}, conntrackErr("looking up", t, err)
	}
	return decodeFlow(answers[0])
}

// Delete removes a flow. The error is fs.ErrNotExist if the flow does not exist.
func (c *Conntrack) Delete(t Tuple) error {
	_, err := c.ask(ctDelete, t)
	return conntrackErr("deleting", t, err)
}

func (c *Conntrack) ask(message uint16, t Tuple) ([][]byte, error) {
	data, err := encodeTuple(t)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conn.Ask(message, 0, data)
}

// Translated returns the flows in conntrack's table whose destination was changed (DNAT), for every
// zone, protocol and address family. The error is fs.ErrPermission if the table may not be read,
// and errors.ErrUnsupported if the kernel does not have it.
func (n *Namespace) Translated(ctx context.Context) (flows []Flow, err error) {
	err = n.Do(ctx, func() error {
		return dumpConntrack(ctGet, func(message []byte) error {
			if !destNAT(message) {
				return ctx.Err()
			}
			f, err := decodeFlow(message)
			flows = append(flows, f)
			return cmp.Or(err, ctx.Err())
		})
	})
	return flows, conntrackErr("listing", Tuple{}, err)
}

// dumpConntrack passes each message of a dump, in the calling thread's namespace, to read, which must not keep it.
func dumpConntrack(kind uint16, read func(message []byte) error) error {
	header := []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0}
	return wire.With(unix.NETLINK_NETFILTER, func(s *wire.Conn) error {
		return s.Each(kind, unix.NLM_F_DUMP, header, func(_ uint16, message []byte) error { return read(message) })
	})
}

func conntrackErr(act string, t Tuple, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%s a flow in conntrack needs CAP_NET_ADMIN: %w", act, unix.EPERM)
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.EINVAL):
		return fmt.Errorf("%s a flow in conntrack (nf_conntrack_netlink): %w", act, errors.ErrUnsupported)
	case t == Tuple{}:
		return fmt.Errorf("%s the flows of conntrack: %w", act, err)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s %s to %s in conntrack: %w", act, t.From, t.To, fs.ErrNotExist)
	}
	return fmt.Errorf("%s %s to %s in conntrack: %w", act, t.From, t.To, err)
}
