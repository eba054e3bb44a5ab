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

// Prefix begins the name of everything that a bridge probe makes on a host.
const Prefix = "ngprobe"

// slots is how many probes can run in one network namespace at the same time,
// each with names, a /28 and a Service address of its own.
const slots = 16

// slot is the names and addresses of one probe. It is held by a lock that ends
// with the process, so whatever bears the name of a free slot is a leftover.
type slot struct {
	name                    string
	group                   uint32 // of the links on the host
	gateway, client, server netip.Addr
	service, endpoint       netip.AddrPort
	lock                    io.Closer
}

const slotBits = 28

// firstGroup is "ngp" and the number of the slot: a link group that nobody else has.
const firstGroup = 'n'<<24 | 'g'<<16 | 'p'<<8

// newSlot returns the i-th slot. Its addresses are of ranges that RFC 5737 keeps for documentation: no network should
// have them, and the host must not route them, except by default.
func newSlot(i int) slot {
	at := func(n int) netip.Addr { return netip.AddrFrom4([4]byte{203, 0, 113, byte(i<<(32-slotBits) + n)}) }
	s := slot{name: Prefix + strconv.Itoa(i), group: firstGroup + uint32(i), gateway: at(1), client: at(2), server: at(3)}
	s.service = netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, 100, byte(10 + i)}), 80)
	s.endpoint = netip.AddrPortFrom(s.server, s.service.Port())
	return s
}

// links is the host's ends of what the slot is made of: the bridge comes last.
func (s slot) links() []string { return []string{s.name + "c", s.name + "s", s.name} }

func (s slot) owns(link string) bool { return slices.Contains(s.links(), link) }

func (s slot) removeLinks(ctx context.Context, router *netns.Namespace) error {
	return router.DeleteLinks(ctx, s.links()...)
}

// mac is a locally administered address, different for every link of every slot.
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

// unrouted fails where the host has a use for one of the slot's addresses.
func (s slot) unrouted(ctx context.Context, router *netns.Namespace) error {
	for _, a := range []netip.Addr{s.service.Addr(), s.gateway, s.client, s.server} {
		route, found, err := router.RouteTo(ctx, a)
		if err != nil {
			return err
		}
		if found {
			return fmt.Errorf("%s is routed on this host (%s), and the probe needs it: RFC 5737 keeps it for documentation, take the route "+
				"away; or prove the kernel without this host's settings: nodegate probe bridge --in-scratch", a, route)
		}
	}
	return nil
}

// Clean removes what killed bridge probes have left in the network namespace of
// the process, and returns the names. Probes that are running are left alone.
func Clean(ctx context.Context) ([]string, error) {
	router, err := netns.Current(ctx)
	if err != nil {
		return nil, err
	}
	defer router.Close()
	return clean(ctx, router, true)
}

// clean looks for leftovers that are only in iptables if all is set: that may cost
// more than the whole probe. Of a leftover that it finds, it removes the iptables
// chains too.
func clean(ctx context.Context, router *netns.Namespace, all bool) ([]string, error) {
	found, err := traces(ctx, router, all)
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
		// A probe that was running may have ended since, and left nothing.
		still, err := traces(ctx, router, all)
		if err == nil && still(s) {
			err = errors.Join(router.RemoveRedirect(ctx, s.name, true), s.removeLinks(ctx, router))
			removed = append(removed, s.name)
		}
		errs = append(errs, err)
		lock.Close()
	}
	return removed, errors.Join(errs...)
}

// traces returns whether something in the namespace has a name of a slot.
func traces(ctx context.Context, router *netns.Namespace, all bool) (func(slot) bool, error) {
	links, err := router.LinksNamed(ctx, Prefix)
	if err != nil {
		return nil, err
	}
	redirects, err := router.Redirects(ctx, Prefix, all)
	if err != nil {
		return nil, err
	}
	return func(s slot) bool { return slices.Contains(redirects, s.name) || slices.ContainsFunc(links, s.owns) }, nil
}
