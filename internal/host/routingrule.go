package host

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"nodegate/internal/host/netns"
)

// RoutingRule is a line of `ip rule`, of IPv4 or IPv6, that looks up a table other
// than main, default and local.
type RoutingRule struct {
	Priority int    `json:"priority"`
	Table    int    `json:"table"`
	From     string `json:"from,omitempty"` // a prefix; "" is all
	Routes   int    `json:"routes"`         // how many the table contains
}

func (m *machineLinks) RoutingRules(context.Context) ([]RoutingRule, error) {
	found, err := netns.Dump(func() ([]netlink.Rule, error) { return netlink.RuleList(netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("listing routing rules: %w", err)
	}
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
		return nil, nil // most machines: no need to ask for every route
	}
	routes, err := netns.Dump(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, fmt.Errorf("listing routes: %w", err)
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

// Memory is what one inspection of a running node remembers for the next one. Only watch has one.
type Memory struct {
	Foreign []Foreign // routes and rules that were there
	Lost    []Foreign // those of them that are gone
	Since   time.Time // the last start of systemd-networkd that was seen
}

// Foreign is a route or a routing rule that neither the kernel, nor advertisements, nor DHCP nor a static configuration made.
type Foreign struct {
	Text string // as ip prints it
	Link string // the link of a route, "" for none
}

func (m *machineLinks) Foreign(context.Context) ([]Foreign, error) {
	routes, err := netns.Dump(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, fmt.Errorf("listing routes: %w", err)
	}
	links, err := netns.Dump(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("listing links: %w", err)
	}
	names := map[int]string{}
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	var all []Foreign
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
	rules, err := netns.Dump(func() ([]netlink.Rule, error) { return netlink.RuleList(netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("listing routing rules: %w", err)
	}
	for _, r := range rules {
		if r.Protocol != unix.RTPROT_KERNEL {
			all = append(all, Foreign{Text: strings.TrimSpace(r.String())})
		}
	}
	return all, nil
}
