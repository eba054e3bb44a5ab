package datapath

import (
	"context"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"nodegate/internal/host/hosttest"
	"nodegate/internal/host/netns"
	"nodegate/internal/require"
)

// The tests that send packets do so in their own network namespaces.

func needRoot(t testing.TB) {
	t.Helper()
	hosttest.NeedRoot(t)
	hosttest.NeedBridgeNetfilter(t)
	hosttest.NeedProgram(t, "iptables")
	hosttest.NeedProgram(t, "ip")
}

func deadline(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// newNetns returns a namespace that is removed at the end of the test.
func newNetns(t testing.TB) *netns.Namespace {
	t.Helper()
	needRoot(t)
	n, err := netns.New(deadline(t))
	must(t, err)
	t.Cleanup(n.Close)
	return n
}

func must(t testing.TB, err error) {
	t.Helper()
	require.NoError(t, err)
}

func sysctl(t testing.TB, n *netns.Namespace, key, value string) {
	t.Helper()
	must(t, n.SetSysctl(deadline(t), key, value))
}

func addrPort(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// runIn runs a program inside a namespace, and returns its output.
func runIn(t testing.TB, n *netns.Namespace, name string, args ...string) string {
	t.Helper()
	var out []byte
	err := n.Do(deadline(t), func() (err error) {
		out, err = exec.Command(name, args...).CombinedOutput()
		return err
	})
	require.True(t, err == nil, "%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	return string(out)
}

// addLink connects two namespaces by a pair of links, and gives each end its addresses.
func addLink(t testing.TB, a *netns.Namespace, aName, aAddr string, b *netns.Namespace, bName, bAddr string) {
	t.Helper()
	must(t, hosttest.AddVeth(deadline(t), a, aName, b, bName))
	for _, end := range []struct {
		n          *netns.Namespace
		name, addr string
	}{{a, aName, aAddr}, {b, bName, bAddr}} {
		if end.addr != "" {
			runIn(t, end.n, "ip", "addr", "add", end.addr, "dev", end.name)
		}
	}
}

// newNode returns a namespace with a bridge of Pods that forwards.
func newNode(t testing.TB) *netns.Namespace {
	t.Helper()
	node := newNetns(t)
	sysctl(t, node, forwardKey, "1")
	runIn(t, node, "sh", "-ec", "ip link add cni0 address 02:00:00:00:00:01 type bridge; ip link set cni0 up; ip addr add 10.244.0.1/24 dev cni0; "+
		"ip route add default dev cni0")
	return node
}
