package host

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// LinkEvent is a notice of the kernel that a link appeared, changed or went.
// The link's Master and VXLAN are not told.
type LinkEvent struct {
	Link Link
	Gone bool
}

// linkEventBuffer is the size of the socket's receive buffer: a notice is about
// 1.5 kB there, so this is some 5,000 of them. The kernel doubles it for its
// own accounting (socket(7), SO_RCVBUF).
const linkEventBuffer = 8 << 20

// LinkEvents sends every notice about a link of the caller's network namespace
// to events, and returns when it misses some (the kernel's queue ran over,
// ENOBUFS in netlink(7)), when the subscription fails, or when ctx ends. Who
// calls again must look at every link then. subscribed is called as soon as
// nothing can be missed any more; buffer is the receive buffer's size, 0 for one
// that fits a node with thousands of pods.
func LinkEvents(ctx context.Context, buffer int, subscribed func(), events chan<- LinkEvent) error {
	if buffer == 0 {
		buffer = linkEventBuffer
	}
	updates, done := make(chan netlink.LinkUpdate), make(chan struct{})
	failed := make(chan error, 1)
	err := netlink.LinkSubscribeWithOptions(updates, done, netlink.LinkSubscribeOptions{
		ReceiveBufferSize: buffer, ReceiveBufferForceSize: unix.Geteuid() == 0,
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
	// The library's goroutine ends when its socket is closed; until then it
	// may still want to hand over an update.
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
			// One notice that could not be read is one that was missed.
			return fmt.Errorf("receiving link events: %w", err)
		case update, more := <-updates:
			if !more {
				return errors.New("receiving link events: the subscription ended")
			}
			u = update
		}
		// What the bridge says of its ports comes in the same group: a port that
		// leaves its bridge is deleted there, and lives on.
		if u.Family == unix.AF_BRIDGE {
			continue
		}
		select {
		case events <- linkEvent(u):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func linkEvent(u netlink.LinkUpdate) LinkEvent {
	a := u.Attrs()
	return LinkEvent{
		Link: Link{Name: a.Name, Index: a.Index, Kind: kind(u.Link), MTU: a.MTU, Up: a.Flags&net.FlagUp != 0},
		Gone: u.Header.Type == unix.RTM_DELLINK,
	}
}

// kind is a link's kind as Link has it.
func kind(l netlink.Link) string {
	if l.Type() == "device" {
		return ""
	}
	return l.Type()
}

// LinkNow is the link of a notice as it is now, false where it has gone, or
// another one has its name.
func LinkNow(l Link) (Link, bool) {
	now, err := netlink.LinkByName(l.Name)
	if err != nil || now.Attrs().Index != l.Index {
		return Link{}, false
	}
	return linkEvent(netlink.LinkUpdate{Link: now}).Link, true
}
