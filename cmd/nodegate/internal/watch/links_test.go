package watch

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
	"nodegate/policy"
)

// TestRecreated: a vxlan is created and removed repeatedly while veths that no requirement matches come and go; every new vxlan is set.
func TestRecreated(t *testing.T) {
	if !hosttest.OwnNetns(t) {
		return
	}
	w := start(t, vxlanPolicy, nil)
	var churn sync.WaitGroup
	stop := make(chan struct{})
	churn.Go(func() { churnVeths(t, 40, stop) })
	const times = 60
	for n := range times {
		l := vxlan("flannel.1", 1)
		add(t, l)
		// Once the kernel has added the link, it has also sent the notification.
		eventually(t, fmt.Sprintf("the offload of the %d. flannel.1 is off", n+1), func() bool { return w.off("flannel.1") })
		remove(t, l)
	}
	close(stop)
	churn.Wait()

	// The kernel may have set the last one before watch reported it.
	eventually(t, "all are reported", func() bool { return w.State().Links == times })
	assert.Equal(t, w.heard("fight"), 0)
	t.Logf("%d notices, %d resyncs", w.State().LinkEvents, w.State().Resyncs)
}

// churnVeths keeps n veths, and replaces them one after another until stop.
func churnVeths(t testing.TB, n int, stop <-chan struct{}) {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		l := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprintf("veth%d", i%n)}, PeerName: fmt.Sprintf("peer%d", i%n)}
		if i >= n {
			if err := netlink.LinkDel(l); err != nil {
				t.Errorf("removing %s: %v", l.Name, err)
				return
			}
		}
		if err := netlink.LinkAdd(l); err != nil {
			t.Errorf("adding %s: %v", l.Name, err)
			return
		}
	}
}

// stalled delays the notifications until release is closed, so that the kernel's queue fills up.
type stalled struct {
	host.Links
	release chan struct{}
}

func (s stalled) Watch(ctx context.Context, subscribed func(), events chan<- host.LinkEvent) error {
	notices := make(chan host.LinkEvent)
	go func() {
		select {
		case <-s.release:
		case <-ctx.Done():
		}
		for {
			select {
			case e := <-notices:
				sendUntilDone(ctx, events, e)
			case <-ctx.Done():
				return
			}
		}
	}()
	return s.Links.Watch(ctx, subscribed, notices)
}

// TestOverrun: the kernel's queue overflows (ENOBUFS) while links appear. No link
// is missed, not even one whose drift would only be reported.
func TestOverrun(t *testing.T) {
	if !hosttest.OwnNetns(t) {
		return
	}
	release := make(chan struct{})
	// Use a long interval: missed links must be found by an immediate inspection, not by the next round.
	w := start(t, `
		link "vxlan" {
		  match { kind = "vxlan" }
		  offload = { tx-checksum-ip-generic = false }
		  drift   = "report"
		}`, func(w *Watcher) {
		w.Host.Links, w.Every = stalled{w.Host.Links, release}, time.Hour
	})
	busy := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "busy0"}}
	add(t, busy)
	for i := range 20000 {
		require.NoError(t, netlink.LinkSetMTU(busy, 1400+i%2))
	}
	add(t, vxlan("vxlan0", 100))
	close(release)
	eventually(t, "the link of the lost notification is set", func() bool { return w.off("vxlan0") })
	if s := w.State(); s.Resyncs == 0 {
		t.Error("the queue never ran over: this test has shown nothing")
	} else {
		t.Logf("%d resyncs, %d notices", s.Resyncs, s.LinkEvents)
	}
}

// TestChanged: a link that exists before watch, one that another program changes back, and one that is given a matching name later.
func TestChanged(t *testing.T) {
	if !hosttest.OwnNetns(t) {
		return
	}
	add(t, vxlan("before", 1))
	add(t, &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "told1"}})
	w := start(t, `
		link "named" {
		  match { name = "flannel*" }
		  offload = { tx-checksum-ip-generic = false }
		  mtu     = 1400
		  sysctl  = { "net.ipv4.conf.*.rp_filter" = 2 }
		}
		link "there" {
		  match { driver = "vxlan" }
		  offload = { tx-checksum-ip-generic = false }
		}
		link "told" {
		  match { name = "told*" }
		  mtu   = 1300
		  drift = "report"
		}
		link "left" {
		  match { name = "left*" }
		  mtu   = 1300
		  drift = "ignore"
		}`, func(w *Watcher) { w.Every = time.Hour })
	eventually(t, "the existing link is set", func() bool { return w.off("before") })

	require.NoError(t, w.h.Links.Set(context.Background(), "before", "offload", map[string]string{feature: "on"}))
	eventually(t, "it is set again", func() bool {
		return w.off("before") && w.heard("corrected link.there before new=false: tx-checksum-ip-generic=on -> "+
			"tx-checksum-ip-generic=off") == 1
	})

	renamed := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "bridge0"}}
	add(t, renamed)
	require.NoError(t, netlink.LinkSetName(renamed, "flannel.9"))
	eventually(t, "the renamed link is set", func() bool {
		v, err := w.h.ReadSysctl("net/ipv4/conf/flannel.9/rp_filter")
		l, linkErr := netlink.LinkByName("flannel.9")
		return err == nil && linkErr == nil && v == "2" && l.Attrs().MTU == 1400
	})

	assert.Equal(t, w.heard("flannel.9 new=false"), 0)

	for _, name := range []string{"told0", "left0"} {
		add(t, &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}})
	}
	eventually(t, "a new link is set even where drift is only reported", func() bool {
		return mtu(t, "told0") == 1300 && w.heard("corrected link.told told0 new=true") == 1 // and was read back
	})
	told, err := netlink.LinkByName("told0")
	require.NoError(t, err)
	require.NoError(t, netlink.LinkSetMTU(told, 1200))
	// Notifications arrive in order, so watch has also handled told0.
	add(t, vxlan("after", 2))
	eventually(t, "a later link is set", func() bool { return w.off("after") })
	// Only recorded changes can be reverted; changes of later links are not recorded.
	assert.True(t, w.heard("wrote link.there of before: [{offload before "+feature+"=on "+feature+"=off }]") == 2 && w.heard("wrote") == 2,
		"recorded is not what was written to the link that was there, twice, and nothing else")
	assert.Equal(t, mtu(t, "told1"), 1500, "mtu of told1")
	assert.True(t, mtu(t, "told0") == 1200 && mtu(t, "left0") == 1500,
		"mtu of told0 is %d, of left0 %d; want 1200 and 1500, as nobody may correct them", mtu(t, "told0"), mtu(t, "left0"))
}

// TestRereadMatch: a reloaded policy matches another driver; a link of the former driver is not changed any more.
func TestRereadMatch(t *testing.T) {
	if !hosttest.OwnNetns(t) {
		return
	}
	reread := make(chan os.Signal)
	w := start(t, "", func(w *Watcher) {
		w.Reread = reread
		text := `link "some" {
			match { driver = "vxlan" }
			mtu = 1400
		}`
		w.Policy = func(again bool) (*policy.Policy, error) {
			if again {
				text = strings.NewReplacer("vxlan", "bridge", "1400", "1300").Replace(text)
			}
			return load(text)
		}
	})
	former := vxlan("vxlan0", 1)
	add(t, former)
	eventually(t, "the first policy is in use", func() bool { return mtu(t, "vxlan0") == 1400 })
	reread <- os.Interrupt
	eventually(t, "the policy is read again", func() bool { return w.heard("reloaded the policy") == 1 })
	require.NoError(t, netlink.LinkSetMTU(former, 1350))
	// Notifications arrive in order, so watch has also handled the other link.
	add(t, &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "bridge0"}})
	eventually(t, "the second policy is in use", func() bool { return mtu(t, "bridge0") == 1300 })
	assert.Equal(t, mtu(t, "vxlan0"), 1350, "mtu of vxlan0")
}

func mtu(t *testing.T, name string) int {
	t.Helper()
	l, err := netlink.LinkByName(name)
	require.NoError(t, err)
	return l.Attrs().MTU
}

// TestDefaultRoute: a route makes a link match, without a notification about the link.
func TestDefaultRoute(t *testing.T) {
	if !hosttest.OwnNetns(t) {
		return
	}
	w := start(t, `
		link "uplink" {
		  match { default_route = true }
		  mtu = 1400
		}`, nil)
	d := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "eth7"}}
	add(t, d)
	require.NoError(t, netlink.LinkSetUp(d))
	require.NoError(t, netlink.RouteAdd(&netlink.Route{LinkIndex: d.Index, Scope: netlink.SCOPE_LINK, Dst: &net.IPNet{IP: net.IPv4zero,
		Mask: net.CIDRMask(0, 32)}}))
	eventually(t, "the uplink is set", func() bool { return mtu(t, "eth7") == 1400 })
	assert.True(t, w.heard("trouble") == 0, "watch reported trouble")
}
