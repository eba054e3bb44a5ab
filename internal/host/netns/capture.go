package netns

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// Capture is a packet socket that sees every TCP segment over IPv4 of one namespace once it is
// open. Only one goroutine at a time may use it.
type Capture struct {
	fd   int
	seen []Segment
}

// Segment is the header of one TCP segment.
type Segment struct {
	From, To netip.AddrPort
	Flags    uint8 // as in the header: FIN 1, SYN 2, RST 4, PSH 8, ACK 16
	Seq, Ack uint32
	Out      bool // sent, not received, by the namespace
}

// The TCP flags that Segment.Flags holds.
const (
	SYN uint8 = 2
	RST uint8 = 4
	ACK uint8 = 16
)

// Capture starts recording the segments that the namespace sends and receives, on every link. It
// needs CAP_NET_RAW.
func (n *Namespace) Capture(ctx context.Context) (*Capture, error) {
	c := &Capture{}
	err := n.Do(ctx, func() (err error) {
		// ETH_P_ALL, because a socket for one protocol does not see sent packets.
		c.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, int(bigEndian(unix.ETH_P_ALL)))
		if errors.Is(err, unix.EPERM) {
			return fmt.Errorf("opening a packet socket needs CAP_NET_RAW: %w", err)
		} else if err != nil {
			return fmt.Errorf("opening a packet socket: %w", err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Segments returns all segments recorded up to now, in order.
func (c *Capture) Segments() ([]Segment, error) {
	buf := make([]byte, 256) // only the headers matter
	for {
		size, from, err := unix.Recvfrom(c.fd, buf, 0)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return slices.Clone(c.seen), nil
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, fmt.Errorf("reading a packet socket: %w", err)
		}
		link, ok := from.(*unix.SockaddrLinklayer)
		if !ok || link.Protocol != bigEndian(unix.ETH_P_IP) {
			continue
		}
		if s, ok := parseSegment(buf[:size]); ok {
			s.Out = link.Pkttype == unix.PACKET_OUTGOING
			c.seen = append(c.seen, s)
		}
	}
}

// Close ends the recording.
func (c *Capture) Close() error { return unix.Close(c.fd) }

// parseSegment parses an IPv4 packet; ok is false for any protocol other than TCP.
func parseSegment(b []byte) (s Segment, ok bool) {
	if len(b) < 20 || b[0]>>4 != 4 || b[9] != unix.IPPROTO_TCP {
		return s, false
	}
	tcp := int(b[0]&0x0f) * 4
	if tcp < 20 || len(b) < tcp+20 || binary.BigEndian.Uint16(b[6:])&0x1fff != 0 {
		return s, false
	}
	from, _ := netip.AddrFromSlice(b[12:16])
	to, _ := netip.AddrFromSlice(b[16:20])
	t := b[tcp:]
	return Segment{
		From:  netip.AddrPortFrom(from, binary.BigEndian.Uint16(t)),
		To:    netip.AddrPortFrom(to, binary.BigEndian.Uint16(t[2:])),
		Seq:   binary.BigEndian.Uint32(t[4:]),
		Ack:   binary.BigEndian.Uint32(t[8:]),
		Flags: t[13],
	}, true
}

// bigEndian returns a 16-bit number as the kernel's packet sockets expect it.
func bigEndian(v uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v))
}
