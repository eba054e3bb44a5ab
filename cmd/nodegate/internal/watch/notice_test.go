package watch

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

// counting counts the reads of a single link's state.
type counting struct {
	host.Links
	gets *atomic.Int32
}

func (c counting) Get(ctx context.Context, name string) (host.Link, error) {
	c.gets.Add(1)
	return c.Links.Get(ctx, name)
}

// TestNoticeAsksOnce: a notification contains the data that watch needs. The link is read once more, and only if something differs.
func TestNoticeAsksOnce(t *testing.T) {
	m := &hosttest.Machine{
		Links: map[string]*hosttest.Link{"cni0": {Index: 7, Kind: "bridge", MTU: 1500}}, Notices: make(chan host.LinkEvent),
	}
	var gets atomic.Int32
	w := start(t, `
		link "named" {
		  match { name = "cni0" }
		  mtu = 1400
		}`, func(w *Watcher) {
		w.Host, w.Observer, w.Every = m.Host(), (&hosttest.Machine{}).Host(), time.Hour
		w.Host.Links = counting{w.Host.Links, &gets}
	})
	eventually(t, "the existing link is set", func() bool { return w.heard("corrected link.named cni0 new=true") == 1 })
	for _, c := range []struct {
		name   string
		notice host.Link
		want   int32
	}{
		{"a late notice: the MTU is right by now", host.Link{Name: "cni0", Index: 7, Kind: "bridge", MTU: 1500}, 1},
		{"nothing differs", host.Link{Name: "cni0", Index: 7, Kind: "bridge", MTU: 1400}, 0},
		{"another link has the name by now", host.Link{Name: "cni0", Index: 6, Kind: "bridge", MTU: 1500}, 1},
		{"a link that nobody asked about", host.Link{Name: "veth0", Index: 8, Kind: "veth", MTU: 1500}, 0},
	} {
		before, seen := gets.Load(), w.State().LinkEvents
		m.Notices <- host.LinkEvent{Link: c.notice}
		m.Notices <- host.LinkEvent{Link: host.Link{Name: "lo", Index: 1}} // once this is handled, so is the previous one
		eventually(t, c.name, func() bool { return w.State().LinkEvents == seen+2 })
		assert.Equal(t, gets.Load()-before, c.want, "%s", c.name)
	}
	assert.Equal(t, w.heard("corrected"), 1)
}
