package path

import (
	"cmp"
	"net/netip"
	"slices"
)

// Route is a route of the node. Link is "" if its packets do not leave by one known link.
type Route struct {
	To   netip.Prefix
	Link string
}

// Routes finds the route of an address. The zero value knows none.
type Routes struct {
	links map[netip.Prefix]string
	bits  []int // lengths of prefixes, the longest first
}

// NewRoutes returns the routes of a table. Of several routes to one range, the link is known if it is the same.
func NewRoutes(list []Route) *Routes {
	r := &Routes{links: map[netip.Prefix]string{}}
	for _, one := range list {
		to := one.To.Masked()
		if link, twice := r.links[to]; twice && link != one.Link {
			one.Link = ""
		}
		if r.links[to] = one.Link; !slices.Contains(r.bits, to.Bits()) {
			r.bits = append(r.bits, to.Bits())
		}
	}
	slices.Sort(r.bits)
	slices.Reverse(r.bits)
	return r
}

// Find returns the route of an address, or the zero value without one.
func (r *Routes) Find(a netip.Addr) Route {
	for _, bits := range r.bits {
		to, err := a.Prefix(bits)
		if err != nil {
			continue // the length is one of IPv6
		}
		if link, is := r.links[to]; is {
			return Route{to, link}
		}
	}
	return Route{}
}

// Link returns the link of the route of an address, or "" if it is not known: Node.Route.
func (r *Routes) Link(a netip.Addr) string { return r.Find(a).Link }

// translated follows a packet from the translation of its destination. In OUTPUT, the link is still the one of
// the first destination (struct nf_hook_state), which is not known.
func (w *walk) translated(all *Rules, p Packet) {
	states := []state{{p: p, weight: 1}}
	if p.Own {
		states[0].p.In = none
		states = w.passAfter(all, Output, natDestination, states)
	}
	for _, s := range w.afterRouting(all, states, "") {
		w.finish(s, Passed)
	}
}

// Routing is the hook of the steps that the routing decision makes.
const Routing = "ROUTING"

// lookup asks the kernel for the route of a packet, if routing rules may choose among tables, and returns why it lacks one.
func (n *Node) lookup(p *Packet) (lost string) {
	known := func(r netip.Prefix) bool { return r.IsValid() }
	if n.Lookup == nil || !known(p.Destination) || p.Mark.Unknown != 0 || p.ToNode == Yes || p.Unnamed && !p.Destination.IsSingleIP() ||
		!p.Own && (!known(p.Source) || p.In == "" || p.In == none) {
		return ""
	}
	hop := n.Lookup(p)
	if hop.Link != "" && !hop.Here {
		p.Out = hop.Link
	}
	return hop.Lost
}

// leave gives a packet of the node the link and, unless it has one, the source of the kernel's route.
func (n *Node) leave(p *Packet) (lost string) {
	if n.Lookup == nil || !p.Destination.IsValid() || !p.Destination.IsSingleIP() || p.leaves != "" {
		return ""
	}
	hop := n.Lookup(p)
	if p.Out = cmp.Or(hop.Link, p.Out); hop.Source.IsValid() && !p.Source.IsValid() {
		p.Source = Addr(hop.Source)
	}
	if hop.Here && p.ToNode == Unknown {
		p.ToNode = Yes
	}
	return hop.Lost
}

// unrouted adds the step of a packet without a route.
func (s state) unrouted(w *walk, why string) state {
	s.last = &Step{Hook: Routing, Program: "ip", Table: "rule", Chain: "routing", Does: why, Effect: Drops, before: s.last,
		Rule: s.p.lookupCommand()}
	return s
}

// lookupCommand returns the command that repeats the kernel's lookup.
func (p *Packet) lookupCommand() string {
	text := "ip route get " + Host(p.Destination).String()
	if p.Source.IsValid() {
		text += " from " + Host(p.Source).String()
	}
	if !p.Own {
		text += " iif " + p.In
	}
	if p.Mark.Value != 0 {
		text += " mark " + p.Mark.String()
	}
	return text
}

// Host returns an address of a range that a Pod may have.
func Host(p netip.Prefix) netip.Addr {
	if p.IsSingleIP() {
		return p.Addr()
	}
	low, _ := hosts(p)
	return low
}

// route finds the link by which a packet leaves.
func (p *Packet) route(n *Node) {
	if p.Out = p.leaves; p.Out == "" && n.Route != nil && p.Destination.IsValid() && p.Destination.IsSingleIP() {
		p.Out = n.Route(p.Destination.Addr())
	}
}
