package writers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// networkdDamage: systemd-networkd restarted and removed the CNI's routes and rules.
func networkdDamage() checks.Problem {
	return checks.Problem{
		Name: "writers.networkd-damage", Stages: []checks.Stage{checks.Run}, Severity: policy.Block,
		Detects: "Routes and routing rules of the CNI disappeared all at once when systemd-networkd restarted.",
		Symptom: "After a systemd update in the night, Pods on this node reach no Pods on other nodes, or only some; " +
			"all Pods run and the node is Ready.",
		How: "`nodegate watch` remembers routes and rules that did not come from the kernel, router advertisements, DHCP or static " +
			"configuration, and the permanent neighbour and forwarding entries of VXLAN links. It reports entries that disappear within a minute " +
			"after systemd-networkd started: at least two, at least half of their kind on a link, and the link still exists. The report ends when " +
			"they are back, when the agent has created as many others, or after a day. networkd.foreign-routes checks the configuration in advance.",
		Remedy: "restart the CNI's agent on this node, which recreates them; then set ManageForeignRoutes=no and " +
			"ManageForeignRoutingPolicyRules=no in /etc/systemd/networkd.conf.d/99-cni.conf",
		TradeOff: "networkd no longer removes stale routes of other programs.",
		Ref:      "https://github.com/kubernetes/kops/issues/17433",
		Inspect:  inspectNetworkdDamage,
	}
}

const (
	networkd   = "systemd-networkd.service"
	shownLost  = 10
	fewestLost = 2
	// flushTime bounds the time between networkd's start and its flush: networkd waits for udev to
	// initialise the link, and a round may come in between. The first round after this time still
	// counts.
	flushTime = time.Minute
	// lostFor bounds how long lost entries are reported: after the remedy an agent creates no
	// entries for Pods that have ended since, and after a day most of a node's Pods are new.
	lostFor = 24 * time.Hour
)

func inspectNetworkdDamage(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("all of the CNI's routes and rules")
	m := h.Memory
	if m == nil {
		s.Skip = "only `nodegate watch` remembers earlier routes"
		return s, nil
	}
	unit, unitErr := h.Units.Crashes(ctx, networkd)
	if unitErr == nil && unit.Active == "inactive" {
		s.Skip = "systemd-networkd is off"
		m.Lost = nil
		if !m.Since.IsZero() { // networkd did not remove what goes while it is off; what cannot be read is forgotten
			m.Foreign, _ = h.Links.Foreign(ctx)
		}
		return s, nil
	}
	now, err := readNetworkState(ctx, h)
	if err != nil {
		return s, errors.Join(unitErr, err)
	}
	if unitErr != nil { // entries that disappear one by one are forgotten; a flush waits until it is known whether networkd started
		if now.flushedEntries(m.Foreign) == nil {
			m.Foreign = now.all
		}
		return s, unitErr
	}
	m.Lost = slices.DeleteFunc(m.Lost, func(f host.Foreign) bool { return !now.isGone(f) })
	if !m.Since.IsZero() && !unit.Since.Equal(m.Since) {
		m.Restarted = time.Now()
	}
	if !m.Restarted.IsZero() {
		if lost := now.flushedEntries(m.Foreign); lost != nil {
			m.Lost, m.Left, m.LostAt = append(m.Lost, lost...), now.all, time.Now()
		}
		if time.Since(m.Restarted) > flushTime {
			m.Restarted = time.Time{}
		}
	}
	m.Foreign, m.Since = now.all, unit.Since
	now.dropRestored(m)
	if len(m.Lost) == 0 {
		return s, nil
	}
	s.Evidence = []checks.Evidence{checks.Seen(networkd, unit.Active+" since "+unit.Since.Format(time.RFC3339))}
	for _, f := range m.Lost[:min(len(m.Lost), shownLost)] {
		s.Evidence = append(s.Evidence, checks.Seen("gone", f.Text))
	}
	s.Differs(fmt.Sprintf("%d routes and rules gone since systemd-networkd restarted", len(m.Lost)), "")
	return s, nil
}

// networkState is the foreign entries and links that one round found.
type networkState struct {
	all   []host.Foreign
	has   map[host.Foreign]bool
	links map[string]bool
}

func readNetworkState(ctx context.Context, h *host.Host) (networkState, error) {
	now := networkState{has: map[host.Foreign]bool{}, links: map[string]bool{"": true}}
	var err error
	if now.all, err = h.Links.Foreign(ctx); err != nil {
		return now, err
	}
	for _, f := range now.all {
		now.has[f] = true
	}
	links, err := h.Links.List(ctx)
	for _, l := range links {
		now.links[l.Name] = true
	}
	return now, err
}

// isGone reports whether an entry is gone although its link exists: an entry disappears together
// with its link.
func (now networkState) isGone(f host.Foreign) bool { return now.links[f.Link] && !now.has[f] }

// flushedEntries returns the entries that are gone, of each kind that lost at least half of its
// entries, or nil if there are fewer than two. networkd flushes all entries of a kind on a link. A
// Pod that ends takes only its own entries, which need not be on its link (rules of the AWS VPC CNI
// and of Cilium with ENI).
func (now networkState) flushedEntries(remembered []host.Foreign) []host.Foreign {
	could, missing := map[string]int{}, map[string]int{}
	for _, f := range remembered {
		if now.links[f.Link] {
			could[flushGroup(f)]++
		}
		if now.isGone(f) {
			missing[flushGroup(f)]++
		}
	}
	var lost []host.Foreign
	for _, f := range remembered {
		if now.isGone(f) && 2*missing[flushGroup(f)] >= could[flushGroup(f)] {
			lost = append(lost, f)
		}
	}
	if len(lost) < fewestLost {
		return nil
	}
	return lost
}

// dropRestored drops the lost entries of each kind for which at least as many entries have been
// created since, the same ones or others: the agent recreates the entries that are still needed.
func (now networkState) dropRestored(m *host.Memory) {
	if len(m.Lost) == 0 || time.Since(m.LostAt) > lostFor {
		m.Lost, m.Left = nil, nil
		return
	}
	left, made, missing := map[host.Foreign]bool{}, map[string]int{}, map[string]int{}
	for _, f := range m.Left {
		left[f] = true
	}
	for _, f := range now.all {
		if !left[f] {
			made[flushGroup(f)]++
		}
	}
	for _, f := range m.Lost {
		missing[flushGroup(f)]++
	}
	m.Lost = slices.DeleteFunc(m.Lost, func(f host.Foreign) bool { return made[flushGroup(f)] >= missing[flushGroup(f)] })
}

// flushGroup returns a key for the entries that networkd flushes together: the routes, the
// neighbours or the forwarding entries of a link, or all rules.
func flushGroup(f host.Foreign) string {
	switch first, _, _ := strings.Cut(f.Text, " "); first {
	case "ip", "neighbour", "fdb": // ip rule
		return first + " " + f.Link
	}
	return "route " + f.Link
}
