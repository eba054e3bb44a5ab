package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// LinkEvent is a notice of the kernel that a link appeared, changed or went.
// Master and VXLAN of the link are not in it.
type LinkEvent struct {
	Link Link
	Gone bool
}

// linkEventBuffer is the size of the socket's receive buffer, for a node with
// thousands of Pods: a notice takes about 1.5 kB of it, so that some 5,000 fit.
// The kernel doubles the size for its own accounting (socket(7), SO_RCVBUF).
const linkEventBuffer = 8 << 20

// Watch fails with ENOBUFS (netlink(7)) when the kernel's queue ran over.
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
	// The library's goroutine ends when its socket is closed; until then it may
	// still have an update to send.
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
			// One notice that could not be read is a missed one.
			return fmt.Errorf("receiving link events: %w", err)
		case update, more := <-updates:
			if !more {
				return errors.New("receiving link events: the subscription ended")
			}
			u = update
		}
		// Notices of a bridge about its ports come in the same group: a port that
		// leaves its bridge is deleted there, and continues to exist.
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
