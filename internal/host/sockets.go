package host

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/netns"
)

// Flow is a connection in conntrack's table.
type Flow = netns.Flow

// Translated returns the flows in this network namespace's conntrack table whose destination was
// changed (DNAT). The error is fs.ErrPermission if the table may not be read, and
// errors.ErrUnsupported if the kernel does not have it.
func Translated(ctx context.Context) ([]Flow, error) {
	ns, err := netns.Current(ctx)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	return ns.Translated(ctx)
}

// Addresses returns the addresses of all links.
func (*machineLinks) Addresses(context.Context) ([]netip.Addr, error) {
	own, err := Addresses()
	return slices.SortedFunc(maps.Keys(own), netip.Addr.Compare), err
}

// Addresses returns this network namespace's own addresses.
func Addresses() (map[netip.Addr]bool, error) { return netns.Addresses(net.InterfaceAddrs) }

// PortIsFree reports whether no process of this machine listens on a TCP port, on any address. It
// briefly binds the port, in a way that does not prevent others from listening. Reading
// /proc/net/tcp would cost the kernel milliseconds, because it walks every bucket of a table sized
// by the machine's memory. False means that the caller must read that table.
func (h *Host) PortIsFree(port string) bool {
	number, err := strconv.ParseUint(port, 10, 16)
	if _, live := h.source().(machineFiles); !live || err != nil || number == 0 {
		return false
	}
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false // a kernel without IPv6
	}
	defer func() { _ = unix.Close(fd) }()
	// kubelet sets SO_REUSEADDR too, as every Go program does: two such sockets may be bound until
	// one listens.
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) != nil ||
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0) != nil {
		return false
	}
	return unix.Bind(fd, &unix.SockaddrInet6{Port: int(number)}) == nil
}
