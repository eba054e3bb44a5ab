package audit

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"nodegate/internal/audit/path"
	"nodegate/internal/audit/proxy"
	"nodegate/internal/host"
)

// AddNetwork adds the facts of the node on which the ways of packets depend. It leaves out what cannot be read.
func AddNetwork(ctx context.Context, h *host.Host, opts *proxy.Options) {
	if list, err := h.Links.Addresses(ctx); err == nil {
		opts.Own = func(a netip.Addr) path.Answer {
			if slices.Contains(list, a) {
				return path.Yes
			}
			return path.No
		}
		opts.Addresses = list
	}
	opts.Links = LinkNames(ctx, h)
	opts.Uplink = Uplink(ctx, h)
	addRoutes(ctx, h, opts)
	opts.Listens = queues(h)
	if encrypts, err := h.Links.Encrypts(); err == nil {
		opts.IPsec = path.No
		if encrypts {
			opts.IPsec = path.Yes
		}
	}
}

// queues answers whether a program takes packets from a queue of NFQUEUE. The file is missing until nfnetlink_queue is loaded.
func queues(h *host.Host) func(uint16) path.Answer {
	return sync.OnceValue(func() func(uint16) path.Answer {
		text, err := h.Files.ReadFile("/proc/net/netfilter/nfnetlink_queue")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return func(uint16) path.Answer { return path.Unknown }
		}
		listens := map[string]bool{}
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 0 {
				listens[f[0]] = true
			}
		}
		return func(queue uint16) path.Answer {
			if listens[strconv.Itoa(int(queue))] {
				return path.Yes
			}
			return path.No
		}
	})()
}

// lookups returns the kernel's routes. The kernel is asked once about each packet. Only routing rules lose a packet: a node without
// them may lack a route on purpose (links.default-route).
func lookups(h *host.Host, rules bool, own func(netip.Addr) path.Answer) func(*path.Packet) path.Hop {
	known := map[host.RouteQuery]path.Hop{}
	return func(p *path.Packet) (hop path.Hop) {
		q := host.RouteQuery{To: path.Host(p.Destination), Mark: p.Mark.Value}
		if p.Source.IsValid() {
			q.From = path.Host(p.Source)
		}
		if !p.Own {
			q.In = p.In
		}
		hop, is := known[q]
		if is {
			return hop
		}
		answer, err := h.Links.Lookup(q)
		hop = path.Hop{Link: answer.Link, Source: answer.Source, Here: answer.Here}
		for _, lost := range []error{unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EACCES, unix.EINVAL} { // EINVAL: a blackhole
			martian := q.In != "" && own != nil && own(q.From) == path.Yes // no Pod has this address
			if rules && !martian && errors.Is(err, lost) {
				hop.Lost = lost.Error()
			}
		}
		known[q] = hop
		return hop
	}
}

// addRoutes adds the node's routes: those to its Pods, if the kernel uses them, and, unless rules choose among tables, all of them.
func addRoutes(ctx context.Context, h *host.Host, opts *proxy.Options) {
	routes, err := h.Links.Routes(ctx)
	if err != nil {
		return
	}
	rules, err := h.Links.RoutingRules(ctx)
	if err != nil {
		return
	}
	links, err := h.Links.List(ctx)
	if err != nil {
		return
	}
	opts.Lookup = lookups(h, len(rules) > 0, opts.Own)
	hasPods := func(name string) bool {
		return path.IsOfAllPods(name) && slices.ContainsFunc(links, func(l host.Link) bool { return l.Kind == "veth" && l.Master == name })
	}
	for _, r := range routes {
		if len(rules) == 0 {
			opts.Routes = append(opts.Routes, path.Route(r))
		}
		if !r.To.IsSingleIP() && r.To.Bits() > 0 && !r.To.Addr().IsLinkLocalUnicast() && hasPods(r.Link) &&
			(len(rules) == 0 || opts.Lookup(&path.Packet{Own: true, Destination: r.To}).Link == r.Link) {
			opts.PodRoutes = append(opts.PodRoutes, path.Route(r))
		}
	}
}

// Uplink returns the link by which replies of other machines certainly come in: the only link with a default route. It returns "" if
// rules choose among tables of routes, or if there is a tunnel, whose routes may take the place of the default route.
func Uplink(ctx context.Context, h *host.Host) string {
	routes, err := h.Links.DefaultRoutes(ctx)
	if err != nil || len(routes) != 1 {
		return ""
	}
	if rules, err := h.Links.RoutingRules(ctx); err != nil || len(rules) > 0 {
		return ""
	}
	links, err := h.Links.List(ctx)
	if err != nil || slices.ContainsFunc(links, isTunnel) {
		return ""
	}
	return routes[0]
}

// isTunnel reports whether a link may lead to other networks. A link of an overlay network leads to Pods.
func isTunnel(l host.Link) bool {
	return l.Up && slices.Contains([]string{"tun", "wireguard", "ppp", "xfrm", "vti", "gre", "gretap", "vrf"}, l.Kind)
}

// OnlyUplink returns the uplink if packets of other machines can come in by no other link: the others lead to Pods or
// containers, or carry their packets over the uplink. It returns "" if that is not known.
func OnlyUplink(ctx context.Context, h *host.Host) string {
	uplink := Uplink(ctx, h)
	links, err := h.Links.List(ctx)
	if err != nil || slices.ContainsFunc(links, func(l host.Link) bool {
		inside := slices.Contains([]string{"veth", "dummy", "vxlan", "geneve", "ipip", "ifb"}, l.Kind) || path.NotOfUplink(l.Name, true)
		return l.Name != uplink && !inside && l.Master != uplink
	}) {
		return ""
	}
	return uplink
}

// LinkNames returns the names of the node's links, or nil if they cannot be read.
func LinkNames(ctx context.Context, h *host.Host) (names []string) {
	list, err := h.Links.List(ctx)
	if err != nil {
		return nil
	}
	for _, l := range list {
		names = append(names, l.Name)
	}
	return names
}
