package watch

import (
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// TestYoungLinks: rounds that meet links before watch has set them do not fail.
func TestYoungLinks(t *testing.T) {
	if !hosttest.OwnNetns(t) {
		return
	}
	w := start(t, `
link "young" {
  match { name = "young*" }
  mtu   = 1400
  drift = "report"
}
publish {}
`, func(w *Watcher) { w.Every = time.Millisecond })
	for range 100 {
		young := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "young0"}}
		add(t, young)
		rounds := w.State().Rounds
		eventually(t, "a round", func() bool { return w.State().Rounds > rounds })
		remove(t, young)
	}
	n := w.heard("fail link.young")
	assert.True(t, n <= 0, "the requirement failed %d times", n)
}

// TestEarly: if the policy publishes a condition, a changed sysctl or link is found before the next round is due.
func TestEarly(t *testing.T) {
	if !hosttest.OwnNetns(t) {
		return
	}
	w := start(t, driftPolicy+`
link "d" {
  match { name = "d0" }
  mtu   = 1400
  drift = "report"
}
publish {}
`, func(w *Watcher) { w.Every = time.Hour })
	w.flip(t, "net/ipv4/conf/all/rp_filter", "2")
	eventually(t, "the failed sysctl is reported", func() bool { return w.heard("fail sysctl.net.ipv4.conf.all.rp_filter") == 1 })
	d := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "d0", MTU: 1400}}
	require.NoError(t, netlink.LinkAdd(d))
	// A link that has passed once is not set again: its drift is only reported.
	rounds := w.State().Rounds
	eventually(t, "a round for the link", func() bool { return w.State().Rounds > rounds })
	require.NoError(t, netlink.LinkSetMTU(d, 1300))
	eventually(t, "the failed link is reported", func() bool { return w.heard("fail link.d") == 1 })
}
