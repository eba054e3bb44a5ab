package netns

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/mdlayher/socket"
	"golang.org/x/sys/unix"
)

// Attempt is a socket in a namespace. The caller chooses its source port, by which conntrack
// distinguishes flows.
type Attempt struct {
	conn *socket.Conn
	to   unix.Sockaddr
}

// Attempt opens a socket bound to from, for one connection to the address to; proto is 6 (TCP) or
// 17 (UDP). It sends nothing. The error wraps EADDRINUSE if the port is in use.
func (n *Namespace) Attempt(ctx context.Context, proto uint8, from, to netip.AddrPort) (*Attempt, error) {
	family, kind := unix.AF_INET, unix.SOCK_STREAM
	if to.Addr().Is6() {
		family = unix.AF_INET6
	}
	if proto == unix.IPPROTO_UDP {
		kind = unix.SOCK_DGRAM
	}
	a := &Attempt{to: sockaddr(to)}
	err := n.Do(ctx, func() (err error) {
		a.conn, err = socket.Socket(family, kind, int(proto), "attempt", nil)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("opening a socket: %w", err)
	}
	if err := a.conn.Bind(sockaddr(from)); err != nil {
		_ = a.conn.Close()
		return nil, fmt.Errorf("binding a socket to %s: %w", from, err)
	}
	return a, nil
}

// Connect returns when TCP is connected, or when ctx ends: immediately, even if ctx is cancelled
// before its deadline.
func (a *Attempt) Connect(ctx context.Context) error {
	defer a.interrupt(ctx)()
	_, err := a.conn.Connect(ctx, a.to)
	return err
}

// Ask sends a datagram and passes each reply to accept, until accept returns true or ctx ends. The
// socket must be connected.
func (a *Attempt) Ask(ctx context.Context, query []byte, accept func(answer []byte) bool) error {
	defer a.interrupt(ctx)()
	if _, err := a.conn.WriteContext(ctx, query); err != nil {
		return err
	}
	buf := make([]byte, 64<<10)
	for {
		size, err := a.conn.ReadContext(ctx, buf)
		if err != nil || accept(buf[:size]) {
			return err
		}
	}
}

// interrupt wakes every waiter on the socket when ctx ends, because the library observes only ctx's
// deadline.
func (a *Attempt) interrupt(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		// Nothing waits on a closed socket.
		_ = a.conn.SetDeadline(time.Unix(0, 1))
	})
}

// Close closes the socket.
func (a *Attempt) Close() { _ = a.conn.Close() }

// SourceAddr returns the source address that the namespace would use. It sends nothing.
func (n *Namespace) SourceAddr(ctx context.Context, to netip.AddrPort) (netip.Addr, error) {
	any := netip.AddrPortFrom(netip.IPv4Unspecified(), 0)
	if to.Addr().Is6() {
		any = netip.AddrPortFrom(netip.IPv6Unspecified(), 0)
	}
	a, err := n.Attempt(ctx, unix.IPPROTO_UDP, any, to)
	if err != nil {
		return netip.Addr{}, err
	}
	defer a.Close()
	if err := a.Connect(ctx); err != nil {
		return netip.Addr{}, fmt.Errorf("routing to %s: %w", to.Addr(), err)
	}
	own, err := a.conn.Getsockname()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("routing to %s: %w", to.Addr(), err)
	}
	switch s := own.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrFrom4(s.Addr), nil
	case *unix.SockaddrInet6:
		return netip.AddrFrom16(s.Addr), nil
	}
	return netip.Addr{}, errors.New("routing: the socket has no address")
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}

// LocalPorts returns the ports that the namespace uses for outgoing connections, without the
// reserved ones.
func (n *Namespace) LocalPorts(ctx context.Context) ([]uint16, error) {
	text, err := n.Sysctl(ctx, "net/ipv4/ip_local_port_range")
	if err != nil {
		return nil, err
	}
	span, err := parsePorts(strings.Join(strings.Fields(text), "-"))
	if err != nil {
		return nil, fmt.Errorf("reading net.ipv4.ip_local_port_range: %w", err)
	}
	text, err = n.Sysctl(ctx, "net/ipv4/ip_local_reserved_ports")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	reserved, err := parsePorts(text)
	if err != nil {
		return nil, fmt.Errorf("reading net.ipv4.ip_local_reserved_ports: %w", err)
	}
	taken := make(map[uint16]bool, len(reserved))
	for _, p := range reserved {
		taken[p] = true
	}
	ports := span[:0]
	for _, p := range span {
		if !taken[p] {
			ports = append(ports, p)
		}
	}
	return ports, nil
}

// parsePorts parses "1,5-7" into 1, 5, 6, 7.
func parsePorts(text string) ([]uint16, error) {
	var ports []uint16
	for _, item := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' }) {
		low, high, span := strings.Cut(item, "-")
		if !span {
			high = low
		}
		first, err := strconv.ParseUint(low, 10, 16)
		if err != nil {
			return nil, err
		}
		last, err := strconv.ParseUint(high, 10, 16)
		if err != nil {
			return nil, err
		}
		for p := first; p <= last; p++ {
			ports = append(ports, uint16(p))
		}
	}
	return ports, nil
}
