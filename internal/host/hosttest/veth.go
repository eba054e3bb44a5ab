package hosttest

import (
	"context"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"

	"nodegate/internal/host/netns"
)

// AddVeth creates a pair of links between two namespaces, sets both up, and waits until they are operational: until then the kernel
// drops packets.
func AddVeth(ctx context.Context, a *netns.Namespace, aName string, b *netns.Namespace, bName string) error {
	err := a.Do(ctx, func() error {
		link := netlink.NewVeth(netlink.LinkAttrs{Name: aName})
		link.PeerName, link.PeerNamespace = bName, netlink.NsFd(b.FD())
		return netlink.LinkAdd(link)
	})
	for i, n := range []*netns.Namespace{a, b, a, b} {
		name := []string{aName, bName}[i%2]
		for wait := i > 1; err == nil; time.Sleep(time.Millisecond) {
			state := netlink.LinkOperState(netlink.OperUp)
			err = n.Do(ctx, func() error {
				l, err := netlink.LinkByName(name)
				if err == nil && !wait {
					return netlink.LinkSetUp(l)
				}
				if err == nil {
					state = l.Attrs().OperState
				}
				return err
			})
			if state == netlink.OperUp {
				break
			}
		}
	}
	if err != nil {
		return fmt.Errorf("joining %s and %s: %w", aName, bName, err)
	}
	return nil
}
