package writers_test

import (
	"fmt"
	"testing"
	"time"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
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
		if r.Verdict == checks.Skip {
			got = "skip: " + r.State.Skip
		}
		if got != want || r.Err != nil {
			t.Errorf("%s: %s (%v), want %s", what, got, r.Err, want)
		}
	}
	const fine = "pass: the routes and rules that were there"
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
