package netns

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/mdlayher/socket"
	"golang.org/x/sys/unix"
)

// Attempt is a socket in a namespace.
type Attempt struct {
	From netip.AddrPort // the kernel chooses the port, by which conntrack distinguishes flows
	conn *socket.Conn
	to   unix.Sockaddr
}

// Attempt opens a socket bound to an address, for one connection to the address to; proto is 6 (TCP) or 17 (UDP). It sends nothing.
// With foreign, the address may be another machine's. The error wraps EADDRINUSE if no port is free.
func (n *Namespace) Attempt(ctx context.Context, proto uint8, from netip.Addr, to netip.AddrPort, foreign bool) (*Attempt, error) {
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
	if raw, err := a.conn.SyscallConn(); foreign && err == nil {
		_ = raw.Control(func(fd uintptr) { SetForeign(int(fd), to.Addr().Is6()) })
	}
	if err = a.conn.Bind(sockaddr(netip.AddrPortFrom(from, 0))); err == nil {
		err = a.readFrom()
	}
	if err != nil {
		_ = a.conn.Close()
		return nil, fmt.Errorf("binding a socket to %s: %w", from, err)
	}
	return a, nil
}

// SetForeign lets a socket have addresses of other machines.
func SetForeign(fd int, is6 bool) {
	if is6 {
		_ = unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_TRANSPARENT, 1)
	} else {
		_ = unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_TRANSPARENT, 1)
	}
}

func (a *Attempt) readFrom() error {
	own, err := a.conn.Getsockname()
	switch s := own.(type) {
	case *unix.SockaddrInet4:
		a.From = netip.AddrPortFrom(netip.AddrFrom4(s.Addr), uint16(s.Port))
	case *unix.SockaddrInet6:
		a.From = netip.AddrPortFrom(netip.AddrFrom16(s.Addr), uint16(s.Port))
	}
	return err
}

// Connect returns when TCP is connected, or when ctx ends: immediately, even if ctx is cancelled
// before its deadline.
func (a *Attempt) Connect(ctx context.Context) error {
	defer a.interrupt(ctx)()
	_, err := a.conn.Connect(ctx, a.to)
	return err
}

// Ask sends a query and passes each part of the reply to accept, until accept returns true or ctx ends. The
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
	any := netip.IPv4Unspecified()
	if to.Addr().Is6() {
		any = netip.IPv6Unspecified()
	}
	a, err := n.Attempt(ctx, unix.IPPROTO_UDP, any, to, false)
	if err != nil {
		return netip.Addr{}, err
	}
	defer a.Close()
	if err = a.Connect(ctx); err == nil {
		err = a.readFrom()
	}
	if err != nil {
		return netip.Addr{}, fmt.Errorf("routing to %s: %w", to.Addr(), err)
	}
	return a.From.Addr(), nil
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}
