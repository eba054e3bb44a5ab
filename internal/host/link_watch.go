package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// LinkEvent is a kernel notification that a link appeared, changed or disappeared. It leaves the
// link's Master and VXLAN unset.
type LinkEvent struct {
	Link Link
	Gone bool
}

// linkEventBuffer is the size of the socket's receive buffer, for a node with thousands of Pods: a
// notification takes about 1.5 kB of it, so about 5,000 fit. The kernel doubles the size for its
// own accounting (socket(7), SO_RCVBUF).
const linkEventBuffer = 8 << 20

// Watch fails with ENOBUFS (netlink(7)) when the kernel's queue overflows.
func (m *machineLinks) Watch(ctx context.Context, subscribed func(), events chan<- LinkEvent) error {
	updates, done := make(chan netlink.LinkUpdate), make(chan struct{})
	failed := make(chan error, 1)
	err := netlink.LinkSubscribeWithOptions(updates, done, netlink.LinkSubscribeOptions{
		ReceiveBufferSize: linkEventBuffer, ReceiveBufferForceSize: unix.Geteuid() == 0,
		ErrorCallback: func(err error) {
			select {
			case failed <- err:
			default:
			}
		},
	})
	if err != nil {
		return fmt.Errorf("subscribing to link events: %w", err)
	}
	// The library's goroutine ends when its socket is closed. Until then it may still have an
	// update to send.
	defer func() {
		close(done)
		go func() {
			for range updates {
			}
		}()
	}()
	subscribed()
	for {
		var u netlink.LinkUpdate
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-failed:
			// A notification that cannot be read counts as missed.
			return fmt.Errorf("receiving link events: %w", err)
		case update, more := <-updates:
			if !more {
				return errors.New("receiving link events: the subscription ended")
			}
			u = update
		}
		// A bridge's notifications about its ports arrive in the same group: a port that leaves its
		// bridge is reported as deleted there, but still exists.
		if u.Family == unix.AF_BRIDGE {
			continue
		}
		select {
		case events <- LinkEvent{Link: newLink(u.Link), Gone: u.Header.Type == unix.RTM_DELLINK}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
