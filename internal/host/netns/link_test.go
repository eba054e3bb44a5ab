package netns_test

import (
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"nodegate/internal/assert"
	"nodegate/internal/host/netns"
	"nodegate/internal/require"
)

// TestLinks: the list of links equals the library's, and ends with an error at the limit.
func TestLinks(t *testing.T) {
	n, ctx := scratch(t)
	err := n.Do(ctx, func() error {
		for _, name := range []string{"one", "two", "three"} {
			if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}); err != nil {
				return err
			}
		}
		want, err := netlink.LinkList()
		if err != nil {
			return err
		}
		got, err := netns.Links()
		if err != nil {
			return err
		}
		same := func(a, b netlink.Link) bool { return a.Type() == b.Type() && a.Attrs().Name == b.Attrs().Name }
		assert.True(t, len(got) >= 4 && slices.EqualFunc(got, want, same), "got %v, want %v", got, want)
		if all, err := netns.LinksUpTo(len(want)); err != nil || len(all) != len(want) {
			t.Errorf("at the limit: %d links, %v", len(all), err)
		}
		_, err = netns.LinksUpTo(2)
		assert.ErrorContains(t, err, "the machine has more than 2 links", "above the limit")
		return nil
	})
	require.NoError(t, err)
}
