package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"nodegate/internal/host/netns"
)

// RoutingRule is a line of `ip rule`, for IPv4 or IPv6, that looks up a table other than main,
// default and local.
type RoutingRule struct {
	Priority int    `json:"priority"`
	Table    int    `json:"table"`
	From     string `json:"from,omitempty"` // a prefix; "" matches all
	Routes   int    `json:"routes"`         // number of routes in the table
}

// allRoutes lists the routes of every table.
func allRoutes() ([]netlink.Route, error) {
	routes, err := netns.Dump(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, fmt.Errorf("listing routes: %w", err)
	}
	return routes, nil
}

func allRules() ([]netlink.Rule, error) {
	rules, err := netns.Dump(func() ([]netlink.Rule, error) { return netlink.RuleList(netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("listing routing rules: %w", err)
	}
	return rules, nil
}

func (m *machineLinks) RoutingRules(context.Context) ([]RoutingRule, error) {
	found, err := allRules()
	var rules []RoutingRule
	for _, r := range found {
		switch r.Table {
		case unix.RT_TABLE_LOCAL, unix.RT_TABLE_MAIN, unix.RT_TABLE_DEFAULT:
			continue
		}
		rule := RoutingRule{Priority: r.Priority, Table: r.Table}
		if r.Src != nil {
			rule.From = r.Src.String()
		}
		rules = append(rules, rule)
	}
	if rules == nil {
		return nil, err // most machines: skip listing every route
	}
	routes, err := allRoutes()
	if err != nil {
		return nil, err
	}
	count := map[int]int{}
	for _, r := range routes {
		count[r.Table]++
	}
	for i := range rules {
		rules[i].Routes = count[rules[i].Table]
	}
	return rules, nil
}

// Memory carries state from one inspection of a running node to the next. Only watch has one.
type Memory struct {
	Foreign []Foreign // routes, rules and entries of the previous inspection
	Lost    []Foreign // the ones that have disappeared
	Left    []Foreign // the ones that remained when Lost was last updated, at LostAt
	LostAt  time.Time
	Since   time.Time // the last observed start of systemd-networkd
	// Restarted is when a restart was observed, zero if that was long ago or before the first
	// inspection.
	Restarted time.Time
	Tunnels   map[string]Tunnel
	Packets   sync.Map // of package audit: what packets last showed
}

// Tunnel is a VXLAN link in its state when routes over it had gateways.
type Tunnel struct{ Index, Gateways int }

// Foreign is a route, a routing rule, or a permanent neighbour or forwarding entry of a VXLAN link,
// that was created neither by the kernel, nor by router advertisements, DHCP or a static
// configuration.
type Foreign struct {
	Text string // as ip prints it
	Link string // the link of a route or an entry, "" for a rule
}

func (m *machineLinks) Foreign(context.Context) ([]Foreign, error) {
	routes, err := allRoutes()
	if err != nil {
		return nil, err
	}
	links, err := netns.Links()
	if err != nil {
		return nil, fmt.Errorf("listing links: %w", err)
	}
	names := map[int]string{}
	var all []Foreign
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
		if _, is := l.(*netlink.Vxlan); is {
			entries, err := foreignEntries(l)
			if err != nil {
				return nil, err
			}
			all = append(all, entries...)
		}
	}
	for _, r := range routes {
		switch r.Protocol {
		case unix.RTPROT_KERNEL, unix.RTPROT_REDIRECT, unix.RTPROT_RA, unix.RTPROT_DHCP, unix.RTPROT_STATIC:
			continue
		}
		to := "default"
		if r.Dst != nil {
			to = r.Dst.String()
		}
		f := Foreign{Text: to, Link: names[r.LinkIndex]}
		if r.Gw != nil {
			f.Text += " via " + r.Gw.String()
		}
		if f.Link != "" {
			f.Text += " dev " + f.Link
		}
		f.Text += fmt.Sprintf(" table %d", r.Table)
		all = append(all, f)
	}
	rules, err := allRules()
	for _, r := range rules {
		if r.Protocol != unix.RTPROT_KERNEL {
			all = append(all, Foreign{Text: strings.TrimSpace(r.String())})
		}
	}
	return all, err
}

// Hop is the gateway of routes over a VXLAN link with learning off: its agent enters the location
// of the gateway.
type Hop struct {
	Link    string `json:"link"`
	Gateway string `json:"gateway"`
	MAC     string `json:"mac,omitempty"`    // from its permanent neighbour entry, "" if missing
	Remote  string `json:"remote,omitempty"` // the machine to which the link sends packets for MAC, "" if unknown
}

// Hops lists the gateways of all VXLAN links whose entries an agent maintains: links without
// learning and without a group, which do not take the destination from each packet's metadata (as
// Cilium's do), and which have routes with gateways (as flannel's and Calico's do).
func (m *machineLinks) Hops(context.Context) ([]Hop, error) {
	links, err := netns.Links()
	if err != nil {
		return nil, fmt.Errorf("listing links: %w", err)
	}
	var hops []Hop
	for _, l := range links {
		v, is := l.(*netlink.Vxlan)
		if !is || v.Learning || v.FlowBased || v.L2miss || v.L3miss || v.Group != nil || v.RawFlags&unix.IFF_NOARP != 0 {
			continue
		}
		entries, err := linkEntries(l)
		if err != nil {
			return nil, err
		}
		routes, err := netns.Dump(func() ([]netlink.Route, error) { return netlink.RouteList(l, netlink.FAMILY_ALL) })
		if err != nil {
			return nil, fmt.Errorf("listing routes: %w", err)
		}
		hops = append(hops, vxlanHops(l.Attrs().Name, routes, entries)...)
	}
	return hops, nil
}

// vxlanHops reads the entries only once: a link has one entry and one gateway for each node of the
// cluster.
func vxlanHops(link string, routes []netlink.Route, entries []netlink.Neigh) (hops []Hop) {
	macs, remotes := map[string]net.HardwareAddr{}, map[string]net.IP{}
	others := string(make([]byte, 6)) // the all-zero address covers addresses without an entry; the last of several wins
	for _, e := range entries {
		mac := string(e.HardwareAddr)
		switch _, known := remotes[mac]; {
		case e.Family != unix.AF_BRIDGE && e.State&unix.NUD_PERMANENT != 0:
			macs[string(e.IP.To16())] = e.HardwareAddr
		case e.Family == unix.AF_BRIDGE && e.IP != nil && (!known || mac == others):
			remotes[mac] = e.IP
		}
	}
	seen := map[string]bool{}
	for _, r := range routes {
		gateway := string(r.Gw.To16())
		if r.Gw == nil || seen[gateway] {
			continue
		}
		seen[gateway] = true
		hop := Hop{Link: link, Gateway: r.Gw.String()}
		if mac := macs[gateway]; len(mac) > 0 {
			hop.MAC = mac.String()
			to, known := remotes[string(mac)]
			if !known {
				to, known = remotes[others]
			}
			if known {
				hop.Remote = to.String()
			}
		}
		hops = append(hops, hop)
	}
	return hops
}

// linkEntries returns the neighbour and forwarding entries of a link.
func linkEntries(l netlink.Link) ([]netlink.Neigh, error) {
	var all []netlink.Neigh
	for _, family := range []int{unix.AF_INET, unix.AF_INET6, unix.AF_BRIDGE} {
		some, err := netns.Dump(func() ([]netlink.Neigh, error) { return netlink.NeighList(l.Attrs().Index, family) })
		if errors.Is(err, unix.EAFNOSUPPORT) {
			continue // IPv6 is off
		}
		if err != nil {
			return nil, fmt.Errorf("listing the neighbours of %s: %w", l.Attrs().Name, err)
		}
		for _, n := range some {
			n.Family = family
			all = append(all, n)
		}
	}
	return all, nil
}

// foreignEntries returns the entries that an agent has added to a VXLAN link, as `ip neigh` and
// `bridge fdb` print them.
func foreignEntries(l netlink.Link) ([]Foreign, error) {
	entries, err := linkEntries(l)
	var all []Foreign
	for _, e := range entries {
		f := Foreign{Link: l.Attrs().Name, Text: fmt.Sprintf("neighbour %s lladdr %s dev %s", e.IP, e.HardwareAddr, l.Attrs().Name)}
		if e.Family == unix.AF_BRIDGE {
			f.Text = fmt.Sprintf("fdb %s dst %s dev %s", e.HardwareAddr, e.IP, l.Attrs().Name)
		}
		if e.State&unix.NUD_PERMANENT != 0 && len(e.HardwareAddr) == 6 {
			all = append(all, f)
		}
	}
	return all, err
}
