package datapath

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
)

// pingTime bounds the wait for a reply. A new IPv6 address answers only after duplicate address detection, up to 2 s.
const pingTime = 3 * time.Second

var errNoReply = errors.New("no reply")

// ping sends ICMP echo requests to an address until one is answered.
func ping(ctx context.Context, to string, wait time.Duration) error {
	addr, err := netip.ParseAddr(to)
	if err != nil {
		return err
	}
	network, request, reply := "ip4:icmp", byte(8), byte(0)
	if addr.Is6() {
		network, request, reply = "ip6:ipv6-icmp", 128, 129
	}
	conn, err := net.DialIP(network, nil, &net.IPAddr{IP: addr.AsSlice()})
	if errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EHOSTUNREACH) { // without a route
		return errNoReply
	}
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	id := [2]byte{byte(os.Getpid() >> 8), byte(os.Getpid())}
	packet := []byte{request, 0, 0, 0, id[0], id[1], 0, 0} // the kernel writes the checksum of ICMPv6
	if addr.Is4() {
		sum := uint32(request)<<8 + uint32(id[0])<<8 + uint32(id[1])
		sum = ^(sum&0xffff + sum>>16)
		packet[2], packet[3] = byte(sum>>8), byte(sum)
	}
	for ctx.Err() == nil {
		// A write fails while the address is not resolved, or a rule rejects it; both may end.
		_, _ = conn.Write(packet)
		_ = conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		for {
			answer := make([]byte, 1500)
			n, _, err := conn.ReadFromIP(answer) // without the header of IPv4
			if err != nil {
				break
			}
			if n >= 6 && answer[0] == reply && answer[4] == id[0] && answer[5] == id[1] {
				return nil
			}
		}
	}
	return errNoReply
}
