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

// networkdDamage: systemd-networkd started again, and what the CNI had made is gone.
func networkdDamage() checks.Problem {
	return checks.Problem{
		Name: "writers.networkd-damage", Stages: []checks.Stage{checks.Run}, Severity: policy.Block,
		Detects: "Routes and routing rules of the CNI vanished all at once when systemd-networkd started again.",
		Symptom: "After an update of systemd in the night Pods of this node reach no others, or only some do; every Pod runs, the node is Ready.",
		How: "Watch remembers the routes and rules that neither the kernel, advertisements, DHCP nor a static configuration made, and the " +
			"permanent neighbour and forwarding entries of VXLAN links. Two or more that go at once in the minute after systemd-networkd " +
			"started, though their link is still there, and that were at least half of their kind on it, are shown until they are back or " +
			"the agent has made as many others, a day at most. " +
			"networkd.foreign-routes judges its configuration before.",
		Remedy: "restart the CNI's agent on this node, which makes them again; then set ManageForeignRoutes=no and " +
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
	// flushTime is how long after its start networkd may flush: it waits for udev to know the link, and a look may come between. The
	// first look after it still counts.
	flushTime = time.Minute
	// lostFor ends what nothing else ends: after the remedy an agent makes nothing for Pods that have ended meanwhile, and after a
	// day most of a node's Pods are others.
	lostFor = 24 * time.Hour
)

func inspectNetworkdDamage(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("the routes and rules that were there")
	m := h.Memory
	if m == nil {
		s.Skip = "only watch remembers what was there"
		return s, nil
	}
	unit, untold := h.Units.Crashes(ctx, networkd)
	if untold == nil && unit.Active == "inactive" {
		s.Skip = "systemd-networkd is off"
		m.Lost = nil
		if !m.Since.IsZero() { // it has run, and may again: what goes until then is not its doing. What cannot be read is forgotten.
			m.Foreign, _ = h.Links.Foreign(ctx)
		}
		return s, nil
	}
	now, err := lookStanding(ctx, h)
	if err != nil {
		return s, errors.Join(untold, err)
	}
	if untold != nil { // what goes bit by bit meanwhile is forgotten; a flush waits for the answer whether networkd started
		if now.flushed(m.Foreign) == nil {
			m.Foreign = now.all
		}
		return s, untold
	}
	m.Lost = slices.DeleteFunc(m.Lost, func(f host.Foreign) bool { return !now.gone(f) })
	if !m.Since.IsZero() && !unit.Since.Equal(m.Since) {
		m.Restarted = time.Now()
	}
	if !m.Restarted.IsZero() {
		if lost := now.flushed(m.Foreign); lost != nil {
			m.Lost, m.Left, m.LostAt = append(m.Lost, lost...), now.all, time.Now()
		}
		if time.Since(m.Restarted) > flushTime {
			m.Restarted = time.Time{}
		}
	}
	m.Foreign, m.Since = now.all, unit.Since
	now.forgive(m)
	if len(m.Lost) == 0 {
		return s, nil
	}
	s.Evidence = []checks.Evidence{checks.Seen(networkd, unit.Active+" since "+unit.Since.Format(time.RFC3339))}
	for _, f := range m.Lost[:min(len(m.Lost), shownLost)] {
		s.Evidence = append(s.Evidence, checks.Seen("gone", f.Text))
	}
	s.Differs(fmt.Sprintf("%d of them gone since systemd-networkd started again", len(m.Lost)), "")
	return s, nil
}

// standing is what one round sees.
type standing struct {
	all   []host.Foreign
	has   map[host.Foreign]bool
	links map[string]bool
}

func lookStanding(ctx context.Context, h *host.Host) (standing, error) {
	now := standing{has: map[host.Foreign]bool{}, links: map[string]bool{"": true}}
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

// gone: with its link an entry goes by itself.
func (now standing) gone(f host.Foreign) bool { return now.links[f.Link] && !now.has[f] }

// flushed returns what is gone of the kinds of which at least half is gone, nil for less than two: networkd flushes everything of a
// kind on a link, while a Pod that ends takes its own, which need not be on its link (rules of AWS VPC CNI, of Cilium with ENI).
func (now standing) flushed(remembered []host.Foreign) []host.Foreign {
	could, missing := map[string]int{}, map[string]int{}
	for _, f := range remembered {
		if now.links[f.Link] {
			could[kind(f)]++
		}
		if now.gone(f) {
			missing[kind(f)]++
		}
	}
	var lost []host.Foreign
	for _, f := range remembered {
		if now.gone(f) && 2*missing[kind(f)] >= could[kind(f)] {
			lost = append(lost, f)
		}
	}
	if len(lost) < fewestLost {
		return nil
	}
	return lost
}

// forgive forgets the lost of each kind of which as many have been made since, the same or others: the agent makes them again,
// and what it leaves out nobody needs.
func (now standing) forgive(m *host.Memory) {
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
			made[kind(f)]++
		}
	}
	for _, f := range m.Lost {
		missing[kind(f)]++
	}
	m.Lost = slices.DeleteFunc(m.Lost, func(f host.Foreign) bool { return made[kind(f)] >= missing[kind(f)] })
}

// kind returns what networkd flushes together: the routes, the neighbours or the forwarding entries of a link, or the rules.
func kind(f host.Foreign) string {
	switch first, _, _ := strings.Cut(f.Text, " "); first {
	case "ip", "neighbour", "fdb": // ip rule
		return first + " " + f.Link
	}
	return "route " + f.Link
}
