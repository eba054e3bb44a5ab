package datapath

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"nodegate/internal/host/netns"
)

// cleanTime bounds the removal, which continues after ctx has ended.
const cleanTime = 5 * time.Second

// bench is the set-up of a probe: two namespaces connected to a bridge in the router's namespace, and a
// redirection of the Service address to the server.
type bench struct {
	slot           slot
	router         *netns.Namespace
	client, server *netns.Namespace
	ours           bool // this probe created the bridge
	redirect       *netns.Redirect
	// The traffic on the client's and the server's link.
	atClient, atServer *netns.Capture
}

// probeIn runs the probe with its bridge in the router's namespace.
func probeIn(ctx context.Context, router *netns.Namespace, o BridgeOptions) (r BridgeResult, err error) {
	r.Where = OnHost
	if o.InScratch {
		r.Where = InScratch
	} else if r.Removed, err = clean(ctx, router); err != nil {
		return r, fmt.Errorf("removing leftovers: %w", err)
	}
	s, err := takeSlot(ctx, router)
	if err != nil {
		return r, err
	}
	defer s.lock.Close()
	if err := s.checkUnrouted(ctx, router); err != nil {
		return r, err
	}
	b, err := build(ctx, router, s)
	if err == nil {
		r.Service, r.Endpoint = s.service, s.endpoint
		err = b.sendRequest(ctx, o, &r)
	}
	if e := b.close(ctx, o); e != nil {
		if err != nil {
			return r, errors.Join(err, e)
		}
		r.Warnings = append(r.Warnings, e.Error())
	}
	return r, err
}

// build returns the bench also on failure, with the parts that close must remove.
func build(ctx context.Context, router *netns.Namespace, s slot) (b *bench, err error) {
	b = &bench{slot: s, router: router}
	if b.client, err = netns.New(ctx); err != nil {
		return b, err
	}
	if b.server, err = netns.New(ctx); err != nil {
		return b, err
	}
	if err := router.AddBridge(ctx, s.name, s.mac(1), s.group); err != nil {
		return b, err
	}
	// Only from here on may close remove the bridge: AddBridge fails if another program has one of this name.
	b.ours = true
	if err := router.AddAddr(ctx, s.name, netip.PrefixFrom(s.gateway, slotBits)); err != nil {
		return b, err
	}
	for i, end := range []struct {
		n    *netns.Namespace
		addr netip.Addr
	}{{b.client, s.client}, {b.server, s.server}} {
		port := netns.Veth{Name: s.links()[i], Master: s.name, MAC: s.mac(byte(2 + 2*i)), Group: s.group,
			Peer: end.n, PeerName: "eth0", PeerMAC: s.mac(byte(3 + 2*i))}
		if err := router.AddVeth(ctx, port); err != nil {
			return b, err
		}
		if err := end.n.AddAddr(ctx, "eth0", netip.PrefixFrom(end.addr, slotBits)); err != nil {
			return b, err
		}
		// The route follows the address: without it the kernel refuses a gateway that it cannot reach.
		if err := end.n.AddRoute(ctx, netip.PrefixFrom(netip.IPv4Unspecified(), 0), s.gateway); err != nil {
			return b, err
		}
	}
	if b.redirect, err = router.AddRedirect(ctx, netns.RedirectSpec{Name: s.name, Service: s.service, Endpoint: s.endpoint,
		Client: s.client}); err != nil {
		return b, err
	}
	if b.atClient, err = b.client.Capture(ctx); err != nil {
		return b, err
	}
	if b.atServer, err = b.server.Capture(ctx); err != nil {
		return b, err
	}
	return b, b.awaitUp(ctx)
}

func (b *bench) awaitUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second) // normally one or two ms
	defer cancel()
	return errors.Join(b.client.AwaitUp(ctx, "eth0"), b.server.AwaitUp(ctx, "eth0"), b.router.AwaitUp(ctx, b.slot.links()...))
}

// close removes everything; a scratch namespace is removed with its content. The kernel delays the
// removal of a part until its last reader is done, so close removes all parts concurrently.
func (b *bench) close(ctx context.Context, o BridgeOptions) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
	defer cancel()
	var parts []func() error
	for _, c := range []*netns.Capture{b.atClient, b.atServer} {
		if c != nil {
			parts = append(parts, c.Close)
		}
	}
	if !o.InScratch {
		if b.redirect != nil {
			parts = append(parts, func() error { return b.redirect.Remove(ctx) })
		}
		if b.ours {
			parts = append(parts, func() error { return b.router.DeleteGroup(ctx, b.slot.group) })
		}
	}
	errs := make([]error, len(parts))
	var all sync.WaitGroup
	for i, part := range parts {
		all.Go(func() { errs[i] = part() })
	}
	all.Wait()
	for _, n := range []*netns.Namespace{b.client, b.server} {
		if n != nil {
			n.Close()
		}
	}
	return errors.Join(errs...)
}
