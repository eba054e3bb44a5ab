package datapath

import (
	"context"
	"encoding/binary"
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

func newSlot(i int, o BridgeOptions) slot {
	subnet, service := o.addresses()
	first := nth(subnet.Addr(), i<<(32-slotBits))
	s := slot{name: Prefix + strconv.Itoa(i), group: firstGroup + uint32(i), gateway: nth(first, 1), client: nth(first, 2),
		server: nth(first, 3)}
	s.service = netip.AddrPortFrom(nth(service.Addr(), i), service.Port())
	s.endpoint = netip.AddrPortFrom(s.server, service.Port())
	return s
}

// nth is the n-th IPv4 address after a; it is not valid past the last one.
func nth(a netip.Addr, n int) netip.Addr {
	b := a.As4()
	v := uint64(binary.BigEndian.Uint32(b[:])) + uint64(n)
	if v > 1<<32-1 {
		return netip.Addr{}
	}
	binary.BigEndian.PutUint32(b[:], uint32(v))
	return netip.AddrFrom4(b)
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
func takeSlot(ctx context.Context, router *netns.Namespace, o BridgeOptions) (slot, error) {
	for i := range slots {
		s := newSlot(i, o)
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
			return fmt.Errorf("%s is routed on this host (%s): give the probe another subnet or Service address", a, route)
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

// clean looks for leftovers of iptables only if all is set: that may cost more
// than the whole probe.
func clean(ctx context.Context, router *netns.Namespace, all bool) ([]string, error) {
	found, err := traces(ctx, router, all)
	if err != nil {
		return nil, err
	}
	var removed []string
	var errs []error
	for i := range slots {
		s := newSlot(i, BridgeOptions{})
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
			err = errors.Join(router.RemoveRedirect(ctx, s.name, all), s.removeLinks(ctx, router))
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
