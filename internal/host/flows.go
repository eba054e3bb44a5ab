package host

import (
	"context"

	"nodegate/internal/host/netns"
)

// Flow is a connection as conntrack knows it.
type Flow = netns.Flow

// Translated returns the flows of this network namespace whose destination was changed (DNAT), as conntrack knows them.
// A table that may not be read, or that the kernel does not have, is fs.ErrPermission or errors.ErrUnsupported.
func Translated(ctx context.Context) ([]Flow, error) {
	ns, err := netns.Current(ctx)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	return ns.Translated(ctx)
}
