package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/netns"
)

// Answer is the other side's view of a connection.
type Answer struct {
	End  int            // the index of the End in Replica.Ends that answered; -1 for the node itself
	At   netip.AddrPort // the address at which it was reached
	From netip.AddrPort // who asked
}

// small and big are the sizes of answers: a packet, and some of full size.
const (
	small = 200
	big   = 40_000
)

// serve answers at the ports, at every end, and where the node's own programs listen.
func (r *Replica) serve(ctx context.Context, ports []Port) error {
	for _, e := range r.Ends {
		for _, p := range ports {
			for _, a := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
				r.listen(ctx, e.Namespace, e.number, p.Protocol, netip.AddrPortFrom(a, p.Number))
			}
		}
	}
	if len(r.Ends) > 0 {
		r.listen(ctx, r.Ends[0].Namespace, 0, unix.IPPROTO_TCP, netip.AddrPortFrom(netip.IPv4Unspecified(), control))
	}
	for _, l := range r.Capture.Listeners {
		if !slices.Contains(ports, Port{l.Protocol, l.At.Port()}) {
			continue
		}
		if at := l.At.Addr().Unmap(); at == netip.IPv6Unspecified() { // most such sockets serve IPv4 too
			r.listen(ctx, r.Node, -1, l.Protocol, netip.AddrPortFrom(netip.IPv4Unspecified(), l.At.Port()))
		}
		r.listen(ctx, r.Node, -1, l.Protocol, netip.AddrPortFrom(l.At.Addr().Unmap(), l.At.Port()))
	}
	return r.Node.Do(ctx, func() error { return r.acceptQueues() })
}

// control is the port at which an end answers itself.
const control = 9

// Control makes a call that no rule of the node can lose: how long it takes shows how busy the machine is. It fails if this process may
// send no packets to other addresses than localhost.
func (r *Replica) Control(ctx context.Context) error {
	if len(r.Ends) == 0 {
		return nil
	}
	at := netip.MustParseAddr("127.0.0.1")
	if r.Ends[0].addresses == nil {
		at = outside4
	}
	for _, a := range r.Ends[0].addresses {
		if a.Is4() {
			at = a
		}
	}
	_, err := r.Send(ctx, Call{To: netip.AddrPortFrom(at, control), Protocol: unix.IPPROTO_TCP})
	return err
}

// listen starts a server. If the address cannot be bound, a flow to it is lost, as on the node.
func (r *Replica) listen(ctx context.Context, n *netns.Namespace, end int, protocol uint8, at netip.AddrPort) {
	network := "4"
	if at.Addr().Is6() {
		network = "6"
	}
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			if end >= 0 { // it has every address
				netns.SetForeign(int(fd), at.Addr().Is6())
			}
			if protocol == unix.IPPROTO_UDP && at.Addr().Is6() {
				_ = unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_RECVPKTINFO, 1)
			} else if protocol == unix.IPPROTO_UDP {
				_ = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_PKTINFO, 1)
			}
		})
	}}
	config.SetMultipathTCP(false)
	_ = n.Do(ctx, func() error {
		if protocol == unix.IPPROTO_TCP {
			l, err := config.Listen(ctx, "tcp"+network, at.String())
			if err == nil {
				r.closers = append(r.closers, func() { _ = l.Close() })
				go serveTCP(l, end)
			}
			return err
		}
		l, err := config.ListenPacket(ctx, "udp"+network, at.String())
		if err == nil {
			r.closers = append(r.closers, func() { _ = l.Close() })
			go serveUDP(l.(*net.UDPConn), end, at)
		}
		return err
	})
}

const wait = 2 * time.Minute // of a server, for a client that is gone or holds its connection

func serveTCP(l net.Listener, end int) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = c.Close() }()
			_ = c.SetDeadline(time.Now().Add(wait))
			query := make([]byte, 64)
			n, err := c.Read(query)
			if err != nil {
				return
			}
			size := small
			if n > 0 && query[0] == 'b' {
				size = big
			}
			_, _ = c.Write(reply(end, c.LocalAddr().String(), c.RemoteAddr().String(), size))
		}()
	}
}

func reply(end int, at, from string, size int) []byte {
	b := fmt.Appendf(make([]byte, 0, size), "%d %s %s ", end, at, from)
	return append(b, strings.Repeat("x", size-len(b))...)
}

// serveUDP answers from the address at which it was asked: the control message that tells it is sent back, without the link.
func serveUDP(l *net.UDPConn, end int, at netip.AddrPort) {
	query, control := make([]byte, 1500), make([]byte, 128)
	destination, link, size := unix.SizeofCmsghdr+8, unix.SizeofCmsghdr, 4 // of struct in_pktinfo
	if at.Addr().Is6() {
		destination, link, size = unix.SizeofCmsghdr, unix.SizeofCmsghdr+16, 16 // of struct in6_pktinfo
	}
	for {
		_, n, _, from, err := l.ReadMsgUDPAddrPort(query, control)
		if err != nil {
			return
		}
		here, told := at, control[:n]
		if n >= max(destination+size, link+4) {
			a, _ := netip.AddrFromSlice(told[destination : destination+size])
			here = netip.AddrPortFrom(a, at.Port())
			clear(told[link : link+4])
		}
		_, _, _ = l.WriteMsgUDPAddrPort(reply(end, here.String(), from.String(), small), told, from)
	}
}

// Call is one connection, or one datagram and its answer.
type Call struct {
	End      int        // the index of the sender in Replica.Ends; -1 for the node
	From     netip.Addr // of a sender that has many addresses; may be invalid
	To       netip.AddrPort
	Protocol uint8
	Big      bool // the answer fills some packets
}

// Send makes a call, and returns once it is answered, refused, or ctx ends.
func (r *Replica) Send(ctx context.Context, call Call) (answer Answer, err error) {
	c, err := r.Open(ctx, call)
	if err != nil {
		return answer, err
	}
	defer c.Close()
	return c.Ask(ctx)
}

// Connection is a call that has not asked yet.
type Connection struct {
	*netns.Attempt
	call Call
}

// Open connects, or binds a socket for a datagram.
func (r *Replica) Open(ctx context.Context, call Call) (*Connection, error) {
	n, from := r.Node, call.From
	if call.End >= 0 {
		n = r.Ends[call.End].Namespace
	}
	if !from.IsValid() && call.To.Addr().Is4() {
		from = netip.IPv4Unspecified()
	} else if !from.IsValid() {
		from = netip.IPv6Unspecified()
	}
	a, err := n.Attempt(ctx, call.Protocol, from, call.To, call.From.IsValid())
	if err != nil {
		return nil, err
	}
	if err := a.Connect(ctx); err != nil {
		a.Close()
		return nil, err
	}
	return &Connection{a, call}, nil
}

// Ask sends a query, and returns the answer.
func (c *Connection) Ask(ctx context.Context) (answer Answer, err error) {
	query, want := []byte("hello"), small
	if c.call.Big {
		query, want = []byte("big"), big
	}
	var all []byte
	if err := c.Attempt.Ask(ctx, query, func(part []byte) bool {
		all = append(all, part...)
		return len(all) >= want || len(part) == 0
	}); err != nil {
		return answer, err
	}
	if len(all) < want {
		return answer, errors.New("the connection ended early")
	}
	f := strings.Fields(string(all[:min(len(all), small)]))
	if len(f) < 3 {
		return answer, errors.New("another server answered")
	}
	answer.End, err = strconv.Atoi(f[0])
	answer.At = addrPort(f[1])
	answer.From = addrPort(f[2])
	return answer, err
}

func addrPort(s string) netip.AddrPort {
	a, _ := netip.ParseAddrPort(s) // of our own server
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// Addresses returns the addresses of a Pod; nil if the end stands for all machines behind its link.
func (e *End) Addresses() []netip.Addr { return e.addresses }

// Behind returns the end behind the link to which the table main sends packets for an address. Packets of the outside come in there,
// whatever routing rules do with the replies.
func (r *Replica) Behind(a netip.Addr) (end int, ok bool) {
	m := r.Capture.route(a, func(m []byte, link int) bool {
		return m[1] != halfDefault && m[7] == unix.RTN_UNICAST && slices.ContainsFunc(r.Ends, func(e *End) bool { return r.isBehind(e, link) })
	})
	if m == nil {
		return 0, false
	}
	return slices.IndexFunc(r.Ends, func(e *End) bool { return r.isBehind(e, linkOfRoute(m)) }), true
}

// halfDefault is the length of 0.0.0.0/1 and 128.0.0.0/1, by which a VPN overrides a default route: others still come in by that one.
const halfDefault = 1

func (r *Replica) isBehind(e *End, link int) bool {
	return !e.Pod && !e.silent && (e.link.Index == link || r.top(e.link).Index == link)
}

// Denial returns the route of the table main by which the kernel refuses packets to an address: an index of Capture.Parts.
func (r *Replica) Denial(a netip.Addr) (part int, ok bool) {
	m := r.Capture.route(a, func([]byte, int) bool { return true })
	if m == nil || m[7] != unix.RTN_BLACKHOLE && m[7] != unix.RTN_UNREACHABLE && m[7] != unix.RTN_PROHIBIT {
		return 0, false
	}
	part = slices.IndexFunc(r.Capture.Parts, func(p Part) bool { return p.Kind == PartRoute && bytes.Equal(p.Message, m) })
	return part, part >= 0
}

// top returns the link that has the addresses: the uppermost bridge of a port.
func (r *Replica) top(l *Link) *Link {
	for up := r.Capture.link(l.Master); up != nil && up.Kind == "bridge" && r.index[up.Index] != 0; up = r.Capture.link(up.Master) {
		l = up
	}
	return l
}

// Uplinks returns the number of links by which default routes leave, but for tunnels.
func (r *Replica) Uplinks() (n int) {
	for _, e := range r.Ends {
		if !e.Pod && !e.silent && !e.Tunnel() && r.Capture.isUplink(r.top(e.link)) {
			n++
		}
	}
	return n
}

// Tunnel returns whether the link of an end may lead to another network than the cluster's: it lacks a hardware address, and no CNI
// made it.
func (e *End) Tunnel() bool {
	if slices.ContainsFunc([]string{"flannel", "cilium", "antrea", "wireguard.cali", "vxlan", "tunl", "kube-", "weave", "kilo", "cni"},
		func(prefix string) bool { return strings.HasPrefix(e.Link, prefix) }) {
		return false
	}
	return e.link.NoARP || slices.Contains([]string{"wireguard", "tun", "ppp", "xfrm", "vti", "gre"}, e.link.Kind)
}
