package netns

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Conntrack looks up single flows in the kernel's connection table over netlink: the cost of a
// lookup does not depend on the number of flows. It is safe for concurrent use.
type Conntrack struct{ conn *netlink.Conn }

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
		if c.conn, err = netlink.Dial(unix.NETLINK_NETFILTER, nil); err != nil {
			return fmt.Errorf("opening conntrack: %w", err)
		}
		return nil
	})
	return c, err
}

// Close closes the socket.
func (c *Conntrack) Close() { _ = c.conn.Close() }

// The ctnetlink messages of linux/netfilter/nfnetlink_conntrack.h.
const (
	ctGet    = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1
	ctDelete = unix.NFNL_SUBSYS_CTNETLINK<<8 | 2
)

// Lookup finds a flow in zone 0 by its original direction. The error is fs.ErrNotExist for an
// untracked flow, fs.ErrPermission if the table may not be read, and errors.ErrUnsupported if the
// kernel does not have it.
func (c *Conntrack) Lookup(t Tuple) (Flow, error) {
	// The kernel marks its single response as one of many and sends no end message: the
	// acknowledgement is the end.
	answers, err := c.ask(ctGet, t)
	if err != nil {
		return Flow{}, conntrackErr("looking up", t, err)
	}
	for _, m := range answers {
		if m.Header.Type == ctNew {
			return decodeFlow(m.Data)
		}
	}
	return Flow{}, conntrackErr("looking up", t, fs.ErrNotExist)
}

// Delete removes a flow. The error is fs.ErrNotExist if the flow does not exist.
func (c *Conntrack) Delete(t Tuple) error {
	_, err := c.ask(ctDelete, t)
	return conntrackErr("deleting", t, err)
}

// answerTime is far more than the kernel needs, because it responds within the same system call.
const answerTime = time.Second

func (c *Conntrack) ask(message netlink.HeaderType, t Tuple) ([]netlink.Message, error) {
	data, err := encodeTuple(t)
	if err != nil {
		return nil, err
	}
	if err := c.conn.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return nil, err
	}
	return c.conn.Execute(netlink.Message{
		Header: netlink.Header{Type: message, Flags: netlink.Request | netlink.Acknowledge},
		Data:   data,
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
