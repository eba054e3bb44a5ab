package host

import (
	"context"

	"nodegate/internal/host/netns"
)

// Translated returns the flows of this network namespace whose destination was changed (DNAT), as conntrack knows them.
// A table that may not be read, or that the kernel does not have, is fs.ErrPermission or errors.ErrUnsupported.
func Translated(ctx context.Context) ([]netns.Flow, error) {
	ns, err := netns.Current(ctx)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	return ns.Translated(ctx)
}
