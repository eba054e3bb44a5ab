package datapath

import (
	"encoding/binary"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"nodegate/internal/host/hosttest"
	"nodegate/internal/host/netns"
)

// TestScenarioInvalidPacketResets sends a packet outside the window from an endpoint on another node. A gateway that classifies it as
// INVALID does not translate it, the client answers with RST to an address that it has no connection to, and the endpoint accepts the RST.
func TestScenarioInvalidPacketResets(t *testing.T) {
	for _, c := range []struct {
		name     string
		survives bool
		liberal  bool
		prepare  func(*testing.T, *netns.Namespace)
	}{
		{"neither liberal nor dropped", false, false, func(t *testing.T, n *netns.Namespace) {}},
		{"be_liberal", true, true, func(t *testing.T, n *netns.Namespace) {
			applyPolicy(t, n, `sysctl "net.netfilter.nf_conntrack_tcp_be_liberal" { value = 1 }`)
		}},
		{"KUBE-FORWARD drops INVALID", true, false, func(t *testing.T, n *netns.Namespace) {
			runIn(t, n, "iptables", "-N", "KUBE-FORWARD")
			runIn(t, n, "iptables", "-A", "FORWARD", "-j", "KUBE-FORWARD")
			runIn(t, n, "iptables", "-A", "KUBE-FORWARD", "-m", "conntrack", "--ctstate", "INVALID", "-j", "DROP")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			gateway, client, server := newGateway(t)
			c.prepare(t, gateway)
			// Counts the packets that the gateway classifies as INVALID, before a rule drops them.
			runIn(t, gateway, "iptables", "-t", "mangle", "-A", "PREROUTING", "-m", "conntrack", "--ctstate", "INVALID")
			seen, err := client.Capture(deadline(t))
			must(t, err)
			t.Cleanup(func() { _ = seen.Close() })
			conn := connect(t, client, server)
			echo(t, conn, true)

			stray := outOfWindow(t, seen, conn)
			inject(t, server, stray)
			if c.liberal {
				await(t, "the stray segment at the client, translated", func() bool { return arrived(t, seen, stray) })
			} else {
				await(t, "the stray segment at the gateway", func() bool { return countInvalid(t, gateway) > 0 })
			}
			if !c.survives {
				await(t, "the client's RST to the endpoint's own address", func() bool { return resets(t, seen) > 0 })
			}
			echo(t, conn, c.survives)
			if got := resets(t, seen); (got == 0) != c.survives {
				t.Errorf("the client reset the endpoint %d times", got)
			}
		})
	}
}

const (
	gatewayService = "198.51.100.10:80"
	clientAddr     = "192.0.2.2"
	serverAddr     = "203.0.113.2"
)

// newGateway returns a client and a server with a translating node between them.
func newGateway(t *testing.T) (gateway, client, server *netns.Namespace) {
	gateway, client, server = newNetns(t), newNetns(t), newNetns(t)
	sysctl(t, gateway, forwardKey, "1")
	for _, end := range []struct {
		n          *netns.Namespace
		name       string
		near, addr string
	}{{client, "client", "192.0.2.1", clientAddr}, {server, "server", "203.0.113.1", serverAddr}} {
		addLink(t, gateway, end.name, end.near+"/24", end.n, "eth0", end.addr+"/24")
		runIn(t, end.n, "ip", "route", "add", "default", "via", end.near)
	}
	runIn(t, gateway, "iptables", "-t", "nat", "-A", "PREROUTING", "-d", "198.51.100.10", "-p", "tcp", "--dport", "80", "-j", "DNAT",
		"--to-destination", serverAddr+":80")
	return gateway, client, server
}

// connect opens a connection to the Service, with an echo server at its other end.
func connect(t testing.TB, client, server *netns.Namespace) net.Conn {
	t.Helper()
	var l net.Listener
	must(t, server.Do(deadline(t), func() (err error) {
		l, err = net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(addrPort("0.0.0.0:80")))
		return err
	}))
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	var conn net.Conn
	must(t, client.Do(deadline(t), func() (err error) {
		conn, err = net.DialTCP("tcp4", nil, net.TCPAddrFromAddrPort(addrPort(gatewayService)))
		return err
	}))
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func echo(t testing.TB, conn net.Conn, works bool) {
	t.Helper()
	must(t, conn.SetDeadline(time.Now().Add(5*time.Second)))
	_, err := io.WriteString(conn, "hello")
	if err == nil {
		_, err = io.ReadFull(conn, make([]byte, 5))
	}
	if (err == nil) != works {
		t.Fatalf("echo: %v", err)
	}
	if !works && !strings.Contains(err.Error(), "connection reset") {
		t.Errorf("echo: %v, want a reset", err)
	}
}

// outOfWindow returns a segment of the endpoint far beyond the data that the client acknowledged. Its own
// acknowledgement is correct, so that the endpoint will accept the RST.
func outOfWindow(t testing.TB, seen *netns.Capture, conn net.Conn) []byte {
	t.Helper()
	segments, err := seen.Segments()
	must(t, err)
	var last netns.Segment
	for _, s := range segments {
		if !s.Out && s.Flags&netns.SYN == 0 {
			last = s
		}
	}
	me := conn.LocalAddr().(*net.TCPAddr).AddrPort()
	return hosttest.Segment(addrPort(serverAddr+":80"), me, last.Seq+1<<30, last.Ack)
}

func inject(t testing.TB, n *netns.Namespace, packet []byte) {
	t.Helper()
	must(t, n.Do(deadline(t), func() error { return hosttest.SendPacket(packet) }))
}

// countInvalid returns the number of packets that the gateway classified as INVALID.
func countInvalid(t testing.TB, gateway *netns.Namespace) int {
	t.Helper()
	rules := runIn(t, gateway, "iptables", "-t", "mangle", "-S", "PREROUTING", "-v")
	_, after, _ := strings.Cut(rules, "--ctstate INVALID -c ")
	packets := 0
	for _, digit := range strings.SplitN(after, " ", 2)[0] {
		packets = packets*10 + int(digit-'0')
	}
	return packets
}

// arrived reports whether a segment reached the client from the Service address.
func arrived(t testing.TB, seen *netns.Capture, packet []byte) bool {
	t.Helper()
	segments, err := seen.Segments()
	must(t, err)
	return slices.ContainsFunc(segments, func(s netns.Segment) bool {
		return !s.Out && s.From == addrPort(gatewayService) && s.Seq == binary.BigEndian.Uint32(packet[24:])
	})
}

func resets(t testing.TB, seen *netns.Capture) int {
	t.Helper()
	segments, err := seen.Segments()
	must(t, err)
	n := 0
	for _, s := range segments {
		if s.Out && s.Flags&netns.RST != 0 && s.To == addrPort(serverAddr+":80") {
			n++
		}
	}
	return n
}

// await polls a condition for at most two seconds.
func await(t testing.TB, what string, met func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range 200 {
		if met() {
			return
		}
		<-tick.C
	}
	t.Fatalf("never saw %s", what)
}
