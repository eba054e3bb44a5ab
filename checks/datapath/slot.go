package datapath

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"syscall"

	"nodegate/internal/host/netns"
)

// Prefix is the prefix of all names that a bridge probe creates on a host.
const Prefix = "ngprobe"

// slots limits the probes that can run concurrently in one network namespace, each with its own names,
// /28 and Service address.
const slots = 16

// slot holds the names and addresses of one probe. It is taken by a lock that ends with the process, so
// any object with the name of a free slot is a leftover.
type slot struct {
	name                    string
	group                   uint32 // link group on the host
	gateway, client, server netip.Addr
	service, endpoint       netip.AddrPort
	lock                    io.Closer
}

const slotBits = 28

// firstGroup is the link group of slot 0: "ngp" followed by the slot's number, which no other program uses.
const firstGroup = 'n'<<24 | 'g'<<16 | 'p'<<8

// newSlot returns the i-th slot. Its addresses are in the documentation ranges of RFC 5737: no network should use them,
// and the host must not route them except by a default route.
func newSlot(i int) slot {
	at := func(n int) netip.Addr { return netip.AddrFrom4([4]byte{203, 0, 113, byte(i<<(32-slotBits) + n)}) }
	s := slot{name: Prefix + strconv.Itoa(i), group: firstGroup + uint32(i), gateway: at(1), client: at(2), server: at(3)}
	s.service = netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, 100, byte(10 + i)}), 80)
	s.endpoint = netip.AddrPortFrom(s.server, s.service.Port())
	return s
}

// links returns the names of the slot's links on the host, the bridge last.
func (s slot) links() []string { return []string{s.name + "c", s.name + "s", s.name} }

func (s slot) owns(link string) bool { return slices.Contains(s.links(), link) }

func (s slot) removeLinks(ctx context.Context, router *netns.Namespace) error {
	return router.DeleteLinks(ctx, s.links()...)
}

// mac returns a locally administered address, unique for every link of every slot.
func (s slot) mac(link byte) net.HardwareAddr {
	a := s.gateway.As4()
	return net.HardwareAddr{0x0a, 0x6e, a[1], a[2], a[3], link}
}

// takeSlot takes the first free slot.
func takeSlot(ctx context.Context, router *netns.Namespace) (slot, error) {
	for i := range slots {
		s := newSlot(i)
		lock, err := router.Lock(ctx, s.lockName())
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		s.lock = lock
		return s, err
	}
	return slot{}, fmt.Errorf("%d probes are already running in this network namespace (abstract sockets @nodegate-%s*)", slots, Prefix)
}

func (s slot) lockName() string { return "nodegate-" + s.name }

// checkUnrouted returns an error if the host routes one of the slot's addresses.
func (s slot) checkUnrouted(ctx context.Context, router *netns.Namespace) error {
	for _, a := range []netip.Addr{s.service.Addr(), s.gateway, s.client, s.server} {
		route, found, err := router.RouteTo(ctx, a)
		if err != nil {
			return err
		}
		if found {
			return fmt.Errorf("%s is routed on this host (%s), but the probe needs it: remove the route, RFC 5737 reserves the address for "+
				"documentation; or run `nodegate probe bridge --in-scratch` to test the kernel without this host's settings", a, route)
		}
	}
	return nil
}

// Clean removes the leftovers of killed bridge probes from the network namespace of the process, and
// returns their names. It leaves running probes alone.
func Clean(ctx context.Context) ([]string, error) {
	router, err := netns.Current(ctx)
	if err != nil {
		return nil, err
	}
	defer router.Close()
	return clean(ctx, router)
}

func clean(ctx context.Context, router *netns.Namespace) ([]string, error) {
	found, err := traces(ctx, router)
	if err != nil {
		return nil, err
	}
	var removed []string
	var errs []error
	for i := range slots {
		s := newSlot(i)
		if !found(s) {
			continue
		}
		lock, err := router.Lock(ctx, s.lockName())
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		} else if err != nil {
			return removed, err
		}
		// A probe that was running may have ended in the meantime and removed its objects.
		still, err := traces(ctx, router)
		if err == nil && still(s) {
			err = errors.Join(router.RemoveRedirect(ctx, s.name), s.removeLinks(ctx, router))
			removed = append(removed, s.name)
		}
		errs = append(errs, err)
		lock.Close()
	}
	return removed, errors.Join(errs...)
}

// traces returns a function that reports whether an object in the namespace has a name of the slot.
func traces(ctx context.Context, router *netns.Namespace) (func(slot) bool, error) {
	links, err := router.LinksNamed(ctx, Prefix)
	if err != nil {
		return nil, err
	}
	redirects, err := router.Redirects(ctx, Prefix)
	if err != nil {
		return nil, err
	}
	return func(s slot) bool { return slices.Contains(redirects, s.name) || slices.ContainsFunc(links, s.owns) }, nil
}
