package host_test

import (
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// TestHops derives the data of each gateway from a link's entries.
func TestHops(t *testing.T) {
	mac := func(last byte) net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 0, last} }
	neighbour := func(ip string, state int, mac net.HardwareAddr) netlink.Neigh {
		return netlink.Neigh{Family: unix.AF_INET, IP: net.ParseIP(ip).To4(), State: state, HardwareAddr: mac}
	}
	forwards := func(mac net.HardwareAddr, to string) netlink.Neigh {
		return netlink.Neigh{Family: unix.AF_BRIDGE, IP: net.ParseIP(to), State: unix.NUD_PERMANENT, HardwareAddr: mac}
	}
	var routes []netlink.Route
	for _, gateway := range []string{"10.0.1.0", "10.0.1.0", "10.0.2.0", "10.0.3.0", "10.0.4.0", "fd00::1"} {
		routes = append(routes, netlink.Route{Gw: net.ParseIP(gateway)})
	}
	routes = append(routes, netlink.Route{})
	entries := []netlink.Neigh{
		neighbour("10.0.1.0", unix.NUD_PERMANENT, mac(9)), neighbour("10.0.1.0", unix.NUD_PERMANENT, mac(1)),
		neighbour("10.0.2.0", unix.NUD_REACHABLE, mac(2)), neighbour("10.0.3.0", unix.NUD_PERMANENT, mac(3)),
		neighbour("10.0.4.0", unix.NUD_PERMANENT, nil),
		{Family: unix.AF_INET6, IP: net.ParseIP("fd00::1"), State: unix.NUD_PERMANENT, HardwareAddr: mac(6)},
		forwards(mac(1), ""), forwards(mac(1), "192.0.2.1"), forwards(mac(1), "192.0.2.9"), forwards(mac(2), "192.0.2.2"),
		forwards(mac(6), "192.0.2.6"),
	}
	want := []host.Hop{
		{Link: "vx", Gateway: "10.0.1.0", MAC: "02:00:00:00:00:01", Remote: "192.0.2.1"},
		{Link: "vx", Gateway: "10.0.2.0"},
		{Link: "vx", Gateway: "10.0.3.0", MAC: "02:00:00:00:00:03"},
		{Link: "vx", Gateway: "10.0.4.0"},
		{Link: "vx", Gateway: "fd00::1", MAC: "02:00:00:00:00:06", Remote: "192.0.2.6"},
	}
	assert.Diff(t, host.HopsOf("vx", routes, entries), want)
	zeros := make(net.HardwareAddr, 6)
	entries = append(entries, forwards(zeros, "192.0.2.7"), forwards(zeros, "192.0.2.8"))
	want[2].Remote = "192.0.2.8" // from the entry for all others
	assert.Diff(t, host.HopsOf("vx", routes, entries), want, "with an entry for all others")
}

// TestHopsGrow: the work grows with the number of nodes, not with its square.
func TestHopsGrow(t *testing.T) {
	work := func(nodes int) time.Duration {
		var routes []netlink.Route
		var entries []netlink.Neigh
		for i := range nodes {
			ip, mac := net.IPv4(10, 0, byte(i>>8), byte(i)), net.HardwareAddr{2, 0, 0, 0, byte(i >> 8), byte(i)}
			routes = append(routes, netlink.Route{Gw: ip})
			entries = append(entries, netlink.Neigh{Family: unix.AF_INET, IP: ip, State: unix.NUD_PERMANENT, HardwareAddr: mac},
				netlink.Neigh{Family: unix.AF_BRIDGE, IP: ip, HardwareAddr: mac})
		}
		best := time.Hour
		for range 10 {
			began := threadTime(t)
			hops := host.HopsOf("vx", routes, entries)
			require.True(t, len(hops) == nodes && hops[nodes-1].Remote != "", "%d hops of %d", len(hops), nodes)
			best = min(best, threadTime(t)-began)
		}
		return best
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if few, many := work(250), work(5000); many > 200*few { // comparing every pair would take 400 times
		t.Errorf("20 times as many nodes take %.0f times as long: %v, %v", float64(many)/float64(few), few, many)
	} else {
		t.Log(few, many)
	}
}

// threadTime returns the processor time of this thread: other programs run too.
func threadTime(t *testing.T) time.Duration {
	t.Helper()
	var now unix.Timespec
	require.NoError(t, unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now))
	return time.Duration(now.Nano())
}

// TestDefaultRoutesKernel: a default route that rejects packets does not count, although the kernel
// reports an IPv6 one as a route over lo.
func TestDefaultRoutesKernel(t *testing.T) {
	if !hosttest.OwnNetns(t) {
		return
	}
	uplink := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "uplink"}, PeerName: "peer"}
	require.NoError(t, netlink.LinkAdd(uplink))
	lo, err := netlink.LinkByName("lo")
	require.NoError(t, err)
	for _, l := range []netlink.Link{uplink, lo} {
		require.NoError(t, netlink.LinkSetUp(l))
	}
	v4, v6 := &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}, &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
	for _, r := range []netlink.Route{
		{Dst: v4, LinkIndex: uplink.Index, Scope: netlink.SCOPE_LINK},
		{Dst: v4, Type: unix.RTN_BLACKHOLE, Priority: 500}, {Dst: v6, Type: unix.RTN_UNREACHABLE, Priority: 9999},
	} {
		require.NoError(t, netlink.RouteAdd(&r), "%v", r)
	}
	h, err := host.Open("/")
	require.NoError(t, err)
	defer h.Close()
	got, err := h.Links.DefaultRoutes(t.Context())
	d := cmp.Diff([]string{"uplink"}, got)
	assert.True(t, d == "" && err == nil, "%v, -want +got:\n%s", err, d)
}
