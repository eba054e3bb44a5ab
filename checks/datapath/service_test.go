package datapath

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"nodegate/internal/assert"
	"nodegate/internal/host/netns"
)

// listen accepts TCP at an address of a namespace, until the test ends.
func listen(t testing.TB, n *netns.Namespace, addr string) {
	t.Helper()
	var l net.Listener
	must(t, n.Do(deadline(t), func() (err error) {
		l, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(addrPort(addr)))
		return err
	}))
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
}

// answerDNS answers every query with NXDOMAIN.
func answerDNS(t testing.TB, n *netns.Namespace, addr string) {
	t.Helper()
	var c *net.UDPConn
	must(t, n.Do(deadline(t), func() (err error) {
		c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(addrPort(addr)))
		return err
	}))
	t.Cleanup(func() { _ = c.Close() })
	go func() {
		buf := make([]byte, 1500)
		for {
			size, from, err := c.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:size]) != nil {
				continue
			}
			m.Response, m.RCode = true, dnsmessage.RCodeNameError
			if answer, err := m.Pack(); err == nil {
				_, _ = c.WriteToUDPAddrPort(answer, from)
			}
		}
	}()
}

const service = "198.51.100.30"

// farm returns a node with a Service whose endpoints are loopback addresses, in chains like kube-proxy's.
// The stale endpoints do not answer.
func farm(t testing.TB, proto string, port, endpoints, stale int) (n *netns.Namespace, gone map[netip.AddrPort]bool) {
	t.Helper()
	n = newNetns(t)
	rules := []string{"*nat", ":KUBE-SERVICES - [0:0]", ":KUBE-SVC-FARM - [0:0]"}
	gone = map[netip.AddrPort]bool{}
	var dispatch, dnat []string
	runIn(t, n, "ip", "addr", "add", "203.0.113.1/24", "dev", "lo")
	for i := range endpoints {
		sep, ip := fmt.Sprintf("KUBE-SEP-%d", i), fmt.Sprintf("203.0.113.%d", 10+i)
		rules = append(rules, ":"+sep+" - [0:0]")
		chance := ""
		if left := endpoints - i; left > 1 {
			chance = fmt.Sprintf(" -m statistic --mode random --probability %.10f", 1/float64(left))
		}
		dispatch = append(dispatch, "-A KUBE-SVC-FARM"+chance+" -j "+sep)
		dnat = append(dnat, fmt.Sprintf("-A %s -p %s -m %s -j DNAT --to-destination %s:%d", sep, proto, proto, ip, port))
		runIn(t, n, "ip", "addr", "add", ip, "dev", "lo")
		switch addr := fmt.Sprintf("%s:%d", ip, port); {
		case i >= endpoints-stale:
			gone[addrPort(addr)] = true
		case proto == "udp":
			answerDNS(t, n, addr)
		default:
			listen(t, n, addr)
		}
	}
	rules = append(rules, fmt.Sprintf("-A KUBE-SERVICES -d %s/32 -p %s -m %s --dport %d -j KUBE-SVC-FARM", service, proto, proto, port),
		"-A OUTPUT -j KUBE-SERVICES")
	rules = append(append(append(rules, dispatch...), dnat...), "COMMIT", "*filter")
	for ip := range gone { // like a removed Pod: no answer
		rules = append(rules, fmt.Sprintf("-A INPUT -d %s -j DROP", ip.Addr()))
	}
	rules = append(rules, "COMMIT", "")
	must(t, n.Do(deadline(t), func() error {
		cmd := exec.Command("iptables-restore")
		cmd.Stdin = strings.NewReader(strings.Join(rules, "\n"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("iptables-restore: %w: %s", err, out)
		}
		return err
	}))
	// The Service address is on no link: a default route lets it be routed, and then translated.
	must(t, n.Do(deadline(t), func() error { return exec.Command("ip", "route", "add", "default", "dev", "lo").Run() }))
	return n, gone
}

// TestScenarioStaleEndpoint finds a stale endpoint in a KUBE-SVC chain: the failing fraction and the endpoint.
func TestScenarioStaleEndpoint(t *testing.T) {
	n, gone := farm(t, "tcp", 8080, 10, 1)
	r, err := serviceIn(deadline(t), n, service+":8080", ServiceOptions{N: 500, Concurrency: 500, Timeout: 10 * time.Second})
	must(t, err)
	var text bytes.Buffer
	must(t, r.Render(&text))
	t.Logf("\n%s", &text)
	failing := r.Failing()
	if len(r.Endpoints) != 10 || len(failing) != 1 || !gone[failing[0].Address] || failing[0].Failed != failing[0].Attempts ||
		r.Unknown.Attempts != 0 {
		t.Errorf("%+v", r)
	}
	if r.Rate.Low > 0.1 || r.Rate.High < 0.1 {
		t.Logf("one run in twenty: the interval %v misses 0.1", r.Rate) // not an error: expected for a 95 % interval
	}
	if r.Rate.Fraction < 0.02 || r.Rate.Fraction > 0.25 || r.Attempts != 500 || r.Reasons["timeout"] != r.Failed {
		t.Errorf("%+v", r)
	}
	if !strings.Contains(r.Summary(), "all sent to 1 of 10 endpoints: 203.0.113.19:8080") {
		t.Error(r.Summary())
	}

	runIn(t, n, "iptables", "-t", "nat", "-R", "KUBE-SVC-FARM", "10", "-j", "KUBE-SEP-0")
	if r, err = serviceIn(deadline(t), n, service+":8080", ServiceOptions{N: 200}); err != nil || r.Failed != 0 || len(r.Endpoints) != 9 {
		t.Errorf("repaired: %v: %s", err, r.Summary())
	}
}

func TestServiceDNS(t *testing.T) {
	n, gone := farm(t, "udp", 53, 4, 1)
	r, err := serviceIn(deadline(t), n, service+":53", ServiceOptions{N: 200, Concurrency: 200, Proto: DNSUDP, Timeout: 10 * time.Second})
	must(t, err)
	failing := r.Failing()
	if len(r.Endpoints) != 4 || len(failing) != 1 || !gone[failing[0].Address] || r.Answers["NameError"] != 200-r.Failed {
		t.Errorf("%s\n%+v", r.Summary(), r)
	}
}

func TestServiceRefused(t *testing.T) {
	n := newNetns(t)
	r, err := serviceIn(deadline(t), n, "127.0.0.1:9", ServiceOptions{N: 5})
	must(t, err)
	if r.Failed != 5 || r.Reasons["refused"] != 5 {
		t.Errorf("%+v", r)
	}
	// No rules are loaded there, so nothing is tracked.
	if !strings.Contains(r.Summary(), "sent to unknown endpoints: conntrack lacks the flow") {
		t.Error(r.Summary())
	}
	if r, err = serviceIn(deadline(t), n, "[::1]:9", ServiceOptions{N: 3}); err != nil || r.Reasons["refused"] != 3 {
		t.Errorf("%v: %+v", err, r)
	}
}

func TestServiceUntranslated(t *testing.T) {
	n := newNetns(t)
	runIn(t, n, "iptables", "-A", "INPUT", "-m", "conntrack", "--ctstate", "INVALID", "-j", "DROP")
	listen(t, n, "127.0.0.1:9")
	r, err := serviceIn(deadline(t), n, "127.0.0.1:9", ServiceOptions{N: 5})
	must(t, err)
	if r.Failed != 0 || !strings.Contains(r.Summary(), "conntrack has no translation") {
		t.Error(r.Summary())
	}
}

func TestServiceCancelled(t *testing.T) {
	n, _ := farm(t, "tcp", 8080, 2, 2)
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	never := ServiceOptions{N: 1000, Timeout: time.Hour} // without the cancellation, the test does not end
	r, err := serviceIn(ctx, n, service+":8080", never)
	if !errors.Is(err, context.DeadlineExceeded) || r.Attempts != 0 {
		t.Errorf("%v: %+v", err, r)
	}
	ctx, cancel = context.WithCancel(context.Background())
	time.AfterFunc(100*time.Millisecond, cancel)
	if _, err = serviceIn(ctx, n, service+":8080", never); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestServiceOptions(t *testing.T) {
	for _, c := range []struct {
		addr string
		o    ServiceOptions
		want string
	}{
		{"127.0.0.1:80", ServiceOptions{}, "must be 1 to 60000, is 0"},
		{"127.0.0.1:80", ServiceOptions{N: -3}, "must be 1 to 60000, is -3"},
		{"127.0.0.1:80", ServiceOptions{N: math.MaxInt}, "must be 1 to 60000, is"},
		{"127.0.0.1:80", ServiceOptions{N: 1, Timeout: -1}, "must not be negative"},
		{"127.0.0.1:80", ServiceOptions{N: 1, Proto: "icmp"}, `protocol "icmp"`},
		{"127.0.0.1", ServiceOptions{N: 1}, "want HOST:PORT: missing port"},
		{"127.0.0.1:0", ServiceOptions{N: 1}, "is not a port"},
		{"127.0.0.1:99999", ServiceOptions{N: 1}, "is not a port"},
		{"127.0.0.1:nonsense", ServiceOptions{N: 1}, "is not a port"},
		{":80", ServiceOptions{N: 1}, "host or port is empty"},
		{"fe80::1:80", ServiceOptions{N: 1}, "too many colons"},
		{"[fe80::1%lo]:80", ServiceOptions{N: 1}, "cannot have a zone"},
		{"no.such.name.invalid:80", ServiceOptions{N: 1}, "no.such.name.invalid"},
	} {
		_, err := Service(deadline(t), c.addr, c.o)
		assert.ErrorContains(t, err, c.want, "%s %+v", c.addr, c.o)
	}
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	must(t, err)
	before := net.DefaultResolver
	defer func() { net.DefaultResolver = before; must(t, silent.Close()) }()
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", silent.LocalAddr().String())
	}}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { // once it is asked
		_, _, _ = silent.ReadFrom(make([]byte, 1))
		cancel()
	}()
	_, err = Service(ctx, "silent.example.com:80", ServiceOptions{N: 1})
	assert.ErrorContains(t, err, "lookup silent.example.com: operation was canceled", "a resolver that does not answer")
}

func BenchmarkService1000(b *testing.B) {
	n, _ := farm(b, "tcp", 8080, 65, 0)
	for b.Loop() {
		r, err := serviceIn(b.Context(), n, service+":8080", ServiceOptions{N: 1000})
		must(b, err)
		if r.Failed > 0 {
			b.Fatal(r.Summary())
		}
	}
}
