package audit

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"nodegate/internal/audit/replay"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/verdict"
)

// TestFindLosses: each loss is a finding, a note, or neither.
func TestFindLosses(t *testing.T) {
	pod, strange := netip.MustParseAddr("10.244.0.5"), netip.MustParseAddr("203.0.113.7")
	flow := func(kind string, from netip.Addr, lost int) Flow {
		return Flow{Sent: 4, Lost: lost, Flow: replay.Flow{Name: "a flow", Kind: kind, Service: "prod/web:http",
			From: replay.From{Pod: from == pod, Node: !from.IsValid(), Address: from},
			To:   netip.MustParseAddrPort("192.0.2.7:443"), Protocol: 6}}
	}
	rule := Loss{Kind: "rule", Family: "ip", Table: "filter", Chain: "FORWARD", Position: 1, Rule: "-A FORWARD -j DROP", Cured: true}
	with := func(change func(*Loss)) Loss {
		l := rule
		change(&l)
		return l
	}
	for what, c := range map[string]struct {
		loss    Loss
		flow    Flow
		finding string
		verdict verdict.Verdict
		note    string
	}{
		"a Service":          {rule, flow(replay.ToService, pod, 4), "kubeproxy.way.service", verdict.Fail, ""},
		"the outside":        {rule, flow(ToOutside, pod, 4), "kubeproxy.way.forward", verdict.Fail, ""},
		"few packets":        {rule, flow(ToOutside, pod, 1), "kubeproxy.way.forward", verdict.Warn, ""},
		"kubelet's port":     {rule, flow(ToKubelet, strange, 4), "kubeproxy.way.forward", verdict.Warn, ""},
		"a closed Service":   {rule, flow(replay.ToService, strange, 4), "kubeproxy.way.service", verdict.Warn, ""},
		"no cause, a Pod":    {Loss{}, flow(replay.ToService, pod, 4), "kubeproxy.way.service", verdict.Warn, ""},
		"no cause, strange":  {Loss{}, flow(replay.ToService, strange, 4), "", 0, ""},
		"a NetworkPolicy":    {with(func(l *Loss) { l.Policy = true }), flow(ToOutside, pod, 4), "", 0, ""},
		"kube-proxy's":       {with(func(l *Loss) { l.Own = true }), flow(ToOutside, pod, 4), "", 0, "are lost: rule 1"},
		"a proxy":            {with(func(l *Loss) { l.Taken = true }), flow(ToOutside, pod, 4), "", 0, "are taken by a program"},
		"a list, outside":    {with(func(l *Loss) { l.Rule = "-A FORWARD -m set --match-set geo dst -j DROP" }), flow(ToOutside, pod, 4), "", 0, "are lost: rule 1"},
		"a list, a Service":  {with(func(l *Loss) { l.Rule = "-A FORWARD -m set --match-set geo dst -j DROP" }), flow(replay.ToService, pod, 4), "kubeproxy.way.service", verdict.Fail, ""},
		"a page":             {rule, flow(ToPage, netip.Addr{}, 4), "", 0, ""},
		"nothing is lost":    {rule, flow(ToOutside, pod, 0), "", 0, ""},
		"a tunnel":           {Loss{Kind: "route", Chain: "default", Table: "52", Rule: "default dev wg0"}, func() Flow { f := flow(ToOutside, pod, 0); f.Link = "wg0"; return f }(), "", 0, "leave by wg0"},
		"no program prints":  {Loss{Kind: "route", Chain: "192.168.50.2/32", Table: "254"}, func() Flow { f := flow(ToOutside, pod, 0); f.Link = "wg0"; return f }(), "", 0, "192.168.50.2/32 of table main"},
		"state starts empty": {rule, func() Flow { f := flow(ToOutside, pod, 4); f.Doubt = "a rate"; return f }(), "", 0, "may be lost: a rate"},
	} {
		c.loss.Flows = []Flow{c.flow}
		found, notes := FindLosses(&Ways{Losses: []Loss{c.loss}, Refused: []string{"owner"}})
		if c.finding == "" != (len(found) == 0) || len(found) > 0 && (found[0].Name != c.finding || found[0].Verdict != c.verdict) {
			t.Errorf("%s: %+v", what, found)
		}
		if is := func(n string) bool { return strings.Contains(n, c.note) }; c.note == "" != (len(notes) == 1) || !slices.ContainsFunc(notes, is) {
			t.Errorf("%s: notes %q", what, notes)
		}
	}
}

// heldPackets answers once it may.
type heldPackets struct {
	host.Rules
	answer chan string
}

func (r heldPackets) Packets(ctx context.Context, _ []byte) ([]byte, error) {
	select {
	case a := <-r.answer:
		return []byte(a), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestPacketsOutlastARound: in watch packets go on after the round that asked for them, and the next one has what they show.
func TestPacketsOutlastARound(t *testing.T) {
	m := hosttest.Machine{}
	h := m.Host()
	h.Remember()
	held := heldPackets{h.Rules, make(chan string)}
	h.Rules = held
	round, end := context.WithCancel(t.Context())
	end()
	for range 2 {
		if _, err := AskWays(round, h, &Judgment{}); err == nil || !strings.Contains(err.Error(), "still on their way") {
			t.Fatalf("before the answer: %v", err)
		}
	}
	held.answer <- `{"fingerprint": "first"}`
	if a, err := AskWays(t.Context(), h, &Judgment{}); err != nil || a.Fingerprint != "first" {
		t.Errorf("after the answer: %+v, %v", a, err)
	}
}

// hurriedPackets notes until when it may answer.
type hurriedPackets struct {
	host.Rules
	until *time.Time
}

func (r hurriedPackets) Packets(ctx context.Context, _ []byte) ([]byte, error) {
	*r.until, _ = ctx.Deadline()
	return nil, context.DeadlineExceeded
}

// TestPacketsLeaveTime: packets may not take the whole time of an audit.
func TestPacketsLeaveTime(t *testing.T) {
	m := hosttest.Machine{}
	h := m.Host()
	var until time.Time
	h.Rules = hurriedPackets{h.Rules, &until}
	ctx, end := context.WithTimeout(t.Context(), time.Hour)
	defer end()
	rep := Judgment{Mode: "iptables", Services: make([]Service, 1)}
	(&Machine{Host: h}).judgeWays(ctx, &rep)
	if all, _ := ctx.Deadline(); until.IsZero() || all.Sub(until) < time.Minute || len(rep.Notes) != 1 {
		t.Errorf("packets may answer until %s of %s; notes %q", until, all, rep.Notes)
	}
}
