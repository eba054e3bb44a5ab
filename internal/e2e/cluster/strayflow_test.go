//go:build cluster

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nodegate/internal/e2e/qemu"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// strayFlow is a node with a Pod, and another node with an endpoint of a Service.
type strayFlow struct {
	node             *ProxyNode
	service          *Service
	client, endpoint *Space
	listener         net.Listener
}

func newStrayFlow(t *testing.T, c *ControlPlane, b Backend) strayFlow {
	t.Helper()
	f := strayFlow{node: addNode(t, c, b)}
	var address string
	var err error
	f.endpoint, address, err = c.addSpace(t.Context())
	require.NoError(t, err)
	t.Cleanup(f.endpoint.Close)
	f.client, err = NewSpace()
	require.NoError(t, err)
	t.Cleanup(f.client.Close)
	f.service, err = c.AddService(t.Context(), "stray-"+strings.ToLower(string(b)), "TCP")
	require.NoError(t, err)
	f.service.Ready = []string{address}
	require.NoError(t, f.service.Update(t.Context()))

	bridge := "ip link add cni0 type bridge; ip address add 10.244.1.1/24 dev cni0; ip link set cni0 up"
	require.NoError(t, f.node.Shell(t.Context(), "sysctl -qw net.ipv4.ip_forward=1; "+bridge))
	require.NoError(t, f.node.Connect(f.client, "pod", "cni0"))
	require.NoError(t, f.client.Shell(t.Context(), "ip address add 10.244.1.2/24 dev eth0; ip link set eth0 up; ip route add default via 10.244.1.1"))
	require.NoError(t, f.endpoint.Shell(t.Context(), `ip route add 10.244.1.0/24 via "$1"`, f.node.Address))
	listen := make(chan error, 1)
	go qemu.OnSpareThread(func() {
		err := f.endpoint.Enter()
		if err == nil {
			f.listener, err = net.Listen("tcp4", fmt.Sprintf("%s:%d", address, endpointPort))
		}
		listen <- err
	})
	require.NoError(t, <-listen)
	t.Cleanup(func() { _ = f.listener.Close() })
	f.connect(t) // the rules are written now
	return f
}

// countSegments counts the stray segment in a hook ($1) by its source ($2), and separately by $3 and $4. It recognises the segment by a
// mark that only its answer shares. On the node this happens before any rule can drop it.
const countSegments = `nft "add table ip seen; delete table ip seen; add table ip seen
add chain ip seen c { type filter hook $1 priority -140; }
add rule ip seen c ip saddr $2 ip dscp 42 $3 counter
add rule ip seen c ip saddr $2 ip dscp 42 $4 counter"`

const mark = 42 << 2

// readCounters returns the counters of countSegments.
func readCounters(t *testing.T, s *Space) (counts [2]int) {
	t.Helper()
	out, err := s.Output(t.Context(), "nft", "list", "chain", "ip", "seen", "c")
	require.NoError(t, err)
	parts := strings.Split(out, "counter packets ")
	require.True(t, len(parts) == 3, "no counters: %s", out)
	for i := range counts {
		_, err = fmt.Sscan(parts[i+1], &counts[i])
		require.NoError(t, err)
	}
	return counts
}

// connect returns both ends of a connection through the Service.
func (f strayFlow) connect(t *testing.T) (here, there net.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), settleTime)
	defer cancel()
	err := Until(ctx, func() (err error) {
		try, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		here, err = f.client.DialContext(try, "tcp4", fmt.Sprintf("%s:%d", f.service.ClusterIP, servicePort))
		return err
	})
	if err == nil {
		there, err = f.listener.Accept()
	}
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = here.Close(), there.Close() })
	return here, there
}

// exchange sends five bytes in both directions.
func exchange(here, there net.Conn) error {
	end := time.Now().Add(5 * time.Second)
	if err := errors.Join(here.SetDeadline(end), there.SetDeadline(end)); err != nil {
		return err
	}
	for _, way := range [][2]net.Conn{{here, there}, {there, here}} {
		if _, err := io.WriteString(way[0], "hello"); err != nil {
			return err
		}
		if _, err := io.ReadFull(way[1], make([]byte, 5)); err != nil {
			return err
		}
	}
	return nil
}

// sendStray sends a segment far outside the window from the endpoint's address. The kernel provides the connection's sequence numbers.
func (f strayFlow) sendStray(there net.Conn) error {
	raw, err := there.(*net.TCPConn).SyscallConn()
	if err != nil {
		return err
	}
	var numbers [2]int // of the next byte to send and to receive
	var wrong error
	err = raw.Control(func(fd uintptr) {
		set := func(option, value int) {
			wrong = errors.Join(wrong, unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, option, value))
		}
		set(unix.TCP_REPAIR, 1)
		for i, queue := range []int{2, 1} { // TCP_SEND_QUEUE and TCP_RECV_QUEUE of linux/tcp.h
			set(unix.TCP_REPAIR_QUEUE, queue)
			var err error
			numbers[i], err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_QUEUE_SEQ)
			wrong = errors.Join(wrong, err)
		}
		set(unix.TCP_REPAIR, unix.TCP_REPAIR_OFF_NO_WP)
	})
	if err := errors.Join(err, wrong); err != nil {
		return err
	}
	address := func(a net.Addr) netip.AddrPort { return a.(*net.TCPAddr).AddrPort() }
	packet := hosttest.Segment(address(there.LocalAddr()), address(there.RemoteAddr()), uint32(numbers[0])+1<<30, uint32(numbers[1]))
	packet[1] = mark
	sent := make(chan error, 1)
	go qemu.OnSpareThread(func() {
		err := f.endpoint.Enter()
		if err == nil {
			err = hosttest.SendPacket(packet)
		}
		sent <- err
	})
	return <-sent
}
