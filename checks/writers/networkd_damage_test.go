package writers_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/verdict"
)

// TestNetworkdDamage: one watch, round after round.
func TestNetworkdDamage(t *testing.T) {
	started := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	m := checkstest.Node(nil, nil)
	m.Links = map[string]*hosttest.Link{"flannel.1": {Kind: "vxlan"}}
	pods := func(from, to int) (all []host.Foreign) {
		for i := from; i < to; i++ {
			link := fmt.Sprintf("veth%d", i)
			m.Links[link] = &hosttest.Link{Kind: "veth"}
			all = append(all, host.Foreign{Text: fmt.Sprintf("10.244.0.%d dev %s table 254", i, link), Link: link})
		}
		return all
	}
	overlay := []host.Foreign{{Text: "10.244.1.0/24 dev flannel.1 table 254", Link: "flannel.1"},
		{Text: "ip rule 512: from all to 10.0.0.9/32 table 10"}}
	h := m.Host()
	round := func(what, want string) {
		t.Helper()
		r := checkstest.On(t.Context(), t, h, checks.Run, "writers.networkd-damage", "")
		got := r.Verdict.String() + ": " + r.State.Got
		if r.Verdict == verdict.Skipped {
			got = "skip: " + r.State.Skip
		}
		if got != want || r.Err != nil {
			t.Errorf("%s: %s (%v), want %s", what, got, r.Err, want)
		}
	}
	round("a check by hand", "skip: only watch remembers what was there")
	h.Memory = &host.Memory{}
	round("networkd is off", "skip: systemd-networkd is off")
	m.Crashes = map[string]host.Crash{"systemd-networkd.service": {Active: "active", Since: started}}
	m.Foreign = append(pods(0, 1000), overlay...)
	round("the first round", fine)
	for i := range 1000 {
		delete(m.Links, fmt.Sprintf("veth%d", i))
	}
	m.Foreign = append(pods(1000, 2000), overlay...)
	round("1,000 Pods go, and 1,000 come", fine)
	m.Foreign = overlay[:1]
	round("a CNI restarts and makes them again later: networkd did nothing", fine)
	m.Foreign = append(pods(1000, 2000), overlay...)
	round("they are back", fine)
	m.Crashes["systemd-networkd.service"] = host.Crash{Active: "active", Since: started.Add(-time.Hour)} // the clock was set, too
	m.Foreign = pods(1000, 2000)
	round("networkd removes the overlay's", "fail: 2 of them gone since systemd-networkd started again")
	round("they stay away", "fail: 2 of them gone since systemd-networkd started again")
	m.Foreign = append(pods(1000, 2000), overlay...)
	round("the CNI makes them again", fine)
	m.Crashes["systemd-networkd.service"] = host.Crash{Active: "active", Since: started.Add(2 * time.Hour)}
	round("networkd starts again and leaves them alone", fine)
}

// rounds is a watch of a node with overlay routes and a rule to each Pod, whose networkd starts again whenever a round says so.
type rounds struct {
	t *testing.T
	m *hosttest.Machine
	h *host.Host
}

const (
	fine    = "pass: the routes and rules that were there"
	service = "systemd-networkd.service"
)

func newRounds(t *testing.T) *rounds {
	m := checkstest.Node(nil, nil)
	m.Links = map[string]*hosttest.Link{"flannel.1": {Kind: "vxlan"}}
	m.Crashes = map[string]host.Crash{service: {Active: "active", Since: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}}
	r := &rounds{t, m, m.Host()}
	r.h.Memory = &host.Memory{}
	return r
}

func (r *rounds) restart() {
	r.m.Crashes[service] = host.Crash{Active: "active", Since: r.m.Crashes[service].Since.Add(time.Hour)}
}

func (r *rounds) round(what, want string) {
	r.t.Helper()
	res := checkstest.On(r.t.Context(), r.t, r.h, checks.Run, "writers.networkd-damage", "")
	got := res.Verdict.String() + ": " + res.State.Got
	switch {
	case res.Err != nil:
		got = "error: " + res.Err.Error()
	case res.Verdict == verdict.Skipped:
		got = "skip: " + res.State.Skip
	}
	if got != want {
		r.t.Errorf("%s: %s, want %s", what, got, want)
	}
}

func lost(n int) string {
	return fmt.Sprintf("fail: %d of them gone since systemd-networkd started again", n)
}

// podRules are the rules of Pods, which name no link.
func podRules(from, to int) (all []host.Foreign) {
	for i := from; i < to; i++ {
		all = append(all, host.Foreign{Text: fmt.Sprintf("ip rule 512: from all to 10.0.0.%d table 10", i)})
	}
	return all
}

func overlayRoutes(from, to int) (all []host.Foreign) {
	for i := from; i < to; i++ {
		all = append(all, host.Foreign{Text: fmt.Sprintf("10.244.%d.0/24 dev flannel.1 table 254", i), Link: "flannel.1"})
	}
	return all
}

// TestNetworkdDamageOff: what goes while networkd is off, or while systemd does not answer, is nobody's fault.
func TestNetworkdDamageOff(t *testing.T) {
	r := newRounds(t)
	r.m.Foreign = append(podRules(0, 10), overlayRoutes(0, 4)...)
	r.round("before", fine)
	on := r.m.Crashes[service]
	r.m.Crashes[service] = host.Crash{Active: "inactive"}
	r.m.Foreign = podRules(0, 2)
	r.round("off, and most of it goes", "skip: systemd-networkd is off")
	r.m.Crashes[service] = on
	r.restart()
	r.round("on again", fine)
	r.restart()
	r.m.Foreign = nil
	r.round("the next start takes the rest", lost(2))
	r.m.Crashes[service] = host.Crash{Active: "inactive"}
	r.round("off", "skip: systemd-networkd is off")
	r.m.Crashes[service] = on
	r.round("on, and all that was lost is of another time", fine)

	r.m.Foreign = podRules(0, 10)
	r.round("ten Pods", fine)
	units := r.h.Units
	r.h.Units = mute{units}
	for n := 9; n > 3; n-- { // one by one, more than half in the end
		r.m.Foreign = podRules(0, n)
		r.round("a Pod ends, and systemd does not answer", "error: no answer")
	}
	r.h.Units = units
	r.restart()
	r.round("systemd answers: networkd started, and six Pods have ended", fine)
	r.h.Units = mute{units}
	r.m.Foreign = nil
	r.round("all go at once", "error: no answer")
	r.h.Units = units
	r.restart()
	r.round("it was networkd", lost(4))
}

// mute are units of a systemd that does not answer.
type mute struct{ host.Units }

func (mute) Crashes(context.Context, string) (host.Crash, error) {
	return host.Crash{}, errors.New("no answer")
}

// TestNetworkdDamagePodEnds: rules of a Pod that ends go with it, though no link says so.
func TestNetworkdDamagePodEnds(t *testing.T) {
	r := newRounds(t)
	r.m.Foreign = append(podRules(0, 10), overlayRoutes(0, 40)...)
	r.round("before", fine)
	r.restart()
	r.m.Foreign = append(podRules(4, 10), overlayRoutes(0, 40)...)
	r.round("two Pods with two rules each end while networkd starts", fine)
	r.restart()
	r.m.Foreign = overlayRoutes(0, 40)
	r.round("networkd flushes the rules, and may keep routes", lost(6))
}

// TestNetworkdDamageEnds: what is lost is not held against the node for ever.
func TestNetworkdDamageEnds(t *testing.T) {
	r := newRounds(t)
	damage := func() {
		t.Helper()
		r.m.Foreign = append(podRules(0, 10), overlayRoutes(0, 4)...)
		r.round("before", fine)
		r.restart()
		r.m.Foreign = nil
		r.round("networkd flushes all", lost(14))
	}
	damage()
	r.m.Foreign = podRules(20, 23)
	r.round("three new Pods come: the others miss their rules", lost(14))
	r.m.Foreign = append(podRules(20, 23), podRules(0, 6)...)
	r.round("the agent restarts: four Pods have ended, six have their rules; the routes stay away", lost(4))
	r.m.Foreign = append(podRules(0, 6), overlayRoutes(10, 14)...)
	r.round("other routes in their place", fine)

	r.h.Memory.Restarted = time.Time{} // long ago
	damage()
	r.h.Memory.LostAt = r.h.Memory.LostAt.Add(-23 * time.Hour)
	r.round("for a day", lost(14))
	r.h.Memory.LostAt = r.h.Memory.LostAt.Add(-2 * time.Hour)
	r.round("and no longer", fine)
}

// TestNetworkdDamageLater: a link's event brings a look between networkd's start and its flush.
func TestNetworkdDamageLater(t *testing.T) {
	r := newRounds(t)
	all := append(podRules(0, 10), overlayRoutes(0, 4)...)
	r.m.Foreign = all
	r.round("before", fine)
	r.restart()
	r.round("networkd has started", fine)
	r.m.Foreign = all[:10]
	r.round("and flushes now", lost(4))
	r.m.Foreign = all
	r.round("the agent makes them again", fine)

	r.restart()
	r.round("networkd has started", fine)
	r.h.Memory.Restarted = r.h.Memory.Restarted.Add(-2 * time.Minute)
	r.round("two minutes ago", fine)
	r.m.Foreign = all[:10]
	r.round("what goes later is not its doing", fine)
}

// TestNetworkdDamageKernel: the kernel's own list of what is foreign.
func TestNetworkdDamageKernel(t *testing.T) {
	h := checkstest.Scratch(t)
	checkstest.PodNetwork(t)
	before, err := h.Links.Foreign(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(before) != 1 || before[0].Link != "nic0" {
		t.Errorf("foreign: %+v; want the default route by nic0 alone", before)
	}
}
