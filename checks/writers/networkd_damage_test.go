package writers_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
	"nodegate/internal/verdict"
)

// TestNetworkdDamage runs several rounds of one watch.
func TestNetworkdDamage(t *testing.T) {
	r := newRounds(t)
	pods := func(from, to int) (all []host.Foreign) {
		for i := from; i < to; i++ {
			link := fmt.Sprintf("veth%d", i)
			r.m.Links[link] = &hosttest.Link{Kind: "veth"}
			all = append(all, host.Foreign{Text: fmt.Sprintf("10.244.0.%d dev %s table 254", i, link), Link: link})
		}
		return all
	}
	overlay := append(overlayRoutes(1, 2), host.Foreign{Text: "ip rule 512: from all to 10.0.0.9/32 table 10"})
	memory, crashes := r.h.Memory, r.m.Crashes
	r.h.Memory = nil
	r.round("a check without watch", "skip: only `nodegate watch` remembers earlier routes")
	r.h.Memory, r.m.Crashes = memory, nil
	r.round("networkd is off", "skip: systemd-networkd is off")
	r.m.Crashes = crashes
	r.m.Foreign = append(pods(0, 1000), overlay...)
	r.round("the first round", fine)
	for i := range 1000 {
		delete(r.m.Links, fmt.Sprintf("veth%d", i))
	}
	r.m.Foreign = append(pods(1000, 2000), overlay...)
	r.round("1,000 Pods end, and 1,000 start", fine)
	r.m.Foreign = overlay[:1]
	r.round("the CNI restarts and recreates them later: networkd is not at fault", fine)
	r.m.Foreign = append(pods(1000, 2000), overlay...)
	r.round("they are back", fine)
	r.m.Crashes[service] = host.Crash{Active: "active", Since: r.m.Crashes[service].Since.Add(-time.Hour)} // the clock was set, too
	r.m.Foreign = pods(1000, 2000)
	r.round("networkd removes the overlay's routes", lost(2))
	r.round("they stay gone", lost(2))
	r.m.Foreign = append(pods(1000, 2000), overlay...)
	r.round("the CNI recreates them", fine)
	r.restart()
	r.round("networkd restarts and keeps them", fine)
}

// rounds is a watch of a node with overlay routes and a rule for each Pod. restart restarts its networkd.
type rounds struct {
	t *testing.T
	m *hosttest.Machine
	h *host.Host
}

const (
	fine    = "pass: all of the CNI's routes and rules"
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
	return fmt.Sprintf("fail: %d routes and rules gone since systemd-networkd restarted", n)
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

// TestNetworkdDamageOff: entries that go while networkd is off, or one by one while systemd does not answer, are not reported.
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
	r.round("on again: earlier losses are forgotten", fine)

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
	r.round("systemd answers: networkd restarted, and six Pods have ended", fine)
	r.h.Units = mute{units}
	r.m.Foreign = nil
	r.round("all disappear at once", "error: no answer")
	r.h.Units = units
	r.restart()
	r.round("it was networkd", lost(4))
}

// mute is a systemd that does not answer.
type mute struct{ host.Units }

func (mute) Crashes(context.Context, string) (host.Crash, error) {
	return host.Crash{}, errors.New("no answer")
}

// TestNetworkdDamagePodEnds: a Pod's rules disappear with it, although they name no link.
func TestNetworkdDamagePodEnds(t *testing.T) {
	r := newRounds(t)
	r.m.Foreign = append(podRules(0, 10), overlayRoutes(0, 40)...)
	r.round("before", fine)
	r.restart()
	r.m.Foreign = append(podRules(4, 10), overlayRoutes(0, 40)...)
	r.round("two Pods with two rules each end while networkd starts", fine)
	r.restart()
	r.m.Foreign = overlayRoutes(0, 40)
	r.round("networkd flushes the rules and keeps the routes", lost(6))
}

// TestNetworkdDamageEnds: losses are not reported forever.
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
	r.round("three new Pods start: the others lack their rules", lost(14))
	r.m.Foreign = append(podRules(20, 23), podRules(0, 6)...)
	r.round("the agent restarts: four Pods have ended, six have their rules; the routes are still gone", lost(4))
	r.m.Foreign = append(podRules(0, 6), overlayRoutes(10, 14)...)
	r.round("other routes replace them", fine)

	r.h.Memory.Restarted = time.Time{} // long ago
	damage()
	r.h.Memory.LostAt = r.h.Memory.LostAt.Add(-23 * time.Hour)
	r.round("still reported after 23 hours", lost(14))
	r.h.Memory.LostAt = r.h.Memory.LostAt.Add(-2 * time.Hour)
	r.round("not after a day", fine)
}

// TestNetworkdDamageLater: a link event starts a round between networkd's start and its flush.
func TestNetworkdDamageLater(t *testing.T) {
	r := newRounds(t)
	all := append(podRules(0, 10), overlayRoutes(0, 4)...)
	r.m.Foreign = all
	r.round("before", fine)
	r.restart()
	r.round("networkd has started", fine)
	r.m.Foreign = all[:10]
	r.round("networkd flushes", lost(4))
	r.m.Foreign = all
	r.round("the agent recreates them", fine)

	r.restart()
	r.round("networkd has started", fine)
	r.h.Memory.Restarted = r.h.Memory.Restarted.Add(-2 * time.Minute)
	r.round("two minutes ago", fine)
	r.m.Foreign = all[:10]
	r.round("later losses are not networkd's", fine)
}

// TestNetworkdDamageKernel reads foreign routes from the real kernel.
func TestNetworkdDamageKernel(t *testing.T) {
	h := checkstest.Scratch(t)
	checkstest.PodNetwork(t)
	before, err := h.Links.Foreign(t.Context())
	require.NoError(t, err)
	assert.True(t, len(before) == 1 && before[0].Link == "nic0", "foreign: %+v; want the default route by nic0 alone", before)
}
