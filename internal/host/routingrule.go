package host

import (
	"context"
	"fmt"

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
