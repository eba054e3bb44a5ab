package watch

import (
	"context"
	"testing"

	"github.com/vishvananda/netlink"

	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// TestChannels: the channels of a link that appears are set. On a link that existed at the start, and after that, a difference is
// reported and not corrected, because the driver may reset the link.
func TestChannels(t *testing.T) {
	if !hosttest.OwnNetns(t) {
		return
	}
	pair := func(name string) {
		add(t, &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name, NumRxQueues: 4, NumTxQueues: 4}, PeerName: name + "p"})
	}
	pair("old")
	w := start(t, "link \"pair\" {\n  match { name = \"[on][le][dw]\" }\n  channels = { rx = 2 }\n}", nil)
	channels := func(name string) uint32 {
		a, err := w.h.Links.Tuning(context.Background(), name, "channels")
		require.NoError(t, err)
		return a["rx"].Now
	}
	eventually(t, "the difference of the old link is reported", func() bool { return w.heard("fail link.pair") == 1 })
	pair("new")
	eventually(t, "the new link is set", func() bool { return channels("new") == 2 })
	eventually(t, "and that is reported", func() bool { return w.heard("corrected link.pair new new=true: channels.rx=4") == 1 })
	require.NoError(t, w.h.Links.Set(t.Context(), "new", "channels", map[string]string{"rx": "3"}))
	rounds := w.State().Rounds
	eventually(t, "two more rounds", func() bool { return w.State().Rounds > rounds+2 })
	assert.True(t, channels("old") == 4 && channels("new") == 3, "watch corrected drift: old %d, new %d", channels("old"), channels("new"))
}
