package replay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/cage"
	"nodegate/internal/host/replica"
)

// Rehearsal is a command that is run in a replica of the node instead of on it.
type Rehearsal struct {
	Question Question
	Capture  *replica.Capture
	Args     []string
	Units    map[string]string // systemd's units on the node, and their state
	Self     []string          // starts this program in the cage
	Outside  *cage.Outside     // its Files are the descriptors from 3 on
	Time     time.Duration
}

// Rehearsed is what the command did there, and would do to packets of the node.
type Rehearsed struct {
	Verdict   string      `json:"verdict"` // pass, fail or unknown
	Command   []string    `json:"command"`
	Exit      int         `json:"exit"`  // of the command
	Ended     bool        `json:"ended"` // in its time
	Said      string      `json:"said,omitempty"`
	Flows     int         `json:"flows"`            // that passed before it
	Lost      []Loss      `json:"lost,omitempty"`   // by cause
	Brief     []Loss      `json:"brief,omitempty"`  // only until kube-proxy and kubelet write their rules again, within half a minute
	Before    []string    `json:"before,omitempty"` // flows that were lost before it too
	Cut       []string    `json:"cut,omitempty"`    // connections that were open, and end
	Changed   []string    `json:"changed,omitempty"`
	Would     cage.Record `json:"would"`
	NotTried  []string    `json:"notTried,omitempty"`
	Connected int         `json:"connected"` // connections that were open
}

// Run runs the command: as root of namespaces of its own, which end with this process.
func (a *Rehearsal) Run(ctx context.Context) (*Rehearsed, error) {
	end := time.Now().Add(a.Time)
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	flows := append(a.Question.flows(a.Capture), a.ports()...)
	spec := &replica.Spec{Pods: a.Question.Cluster.Pods, Ports: Ports(flows)}
	r, err := replica.Build(ctx, a.Capture, spec)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	p, o := New(r), &Rehearsed{Command: a.Args, NotTried: r.Refused}
	list, err := p.look(ctx, flows)
	if err != nil {
		return nil, err
	}
	flows = nil
	for _, f := range list {
		if f.Lost > 0 {
			o.Before = append(o.Before, f.Flow.Name)
			continue
		}
		f.Flow.Hidden = f.Flow.Outside && f.Own && f.Flow.From.Address.IsValid()
		flows = append(flows, f.Flow)
	}
	o.Flows = len(flows)
	held := p.hold(ctx, flows)
	o.Connected = len(held)
	was, err := r.Again(ctx, a.Question.keep)
	if err != nil {
		return nil, err
	}
	hops := p.hops(ctx, flows)
	// The flows after it need time too.
	limit, done := context.WithTimeout(ctx, time.Until(end)*2/3)
	c, err := cage.Run(limit, cage.Spec{Args: a.Args, Network: r.Node.FD(), Units: a.Units, Self: a.Self, Outside: a.Outside})
	done()
	if err != nil {
		return nil, fmt.Errorf("running %s: %w", a.Args[0], err)
	}
	defer c.Close()
	o.Exit, o.Ended, o.Said, o.Would = c.Exit, c.Ended, c.Said, c.Would()
	now, err := r.Again(ctx, a.Question.keep)
	if err != nil {
		return nil, err
	}
	o.Changed = changes(was, now)
	if list, err = p.look(ctx, flows); err != nil {
		return nil, err
	}
	o.Cut = p.cut(ctx, held, list)
	for to, hop := range p.hops(ctx, flows) { // one kernel stands for all machines behind a link
		if hop != hops[to] && hop != "" && hops[to] != "" {
			o.NotTried = append(o.NotTried, fmt.Sprintf("packets to %s go to %s instead of %s: whether they arrive is not known", to, hop, hops[to]))
		}
	}
	if err := a.name(ctx, r, spec, was, now, list, o); err != nil {
		return nil, err
	}
	return o, nil
}

func (q *Question) keep([]string) map[string]bool {
	keep := map[string]bool{}
	for _, key := range q.Keys {
		keep[key] = true
	}
	return keep
}

// ports returns the flows from outside to the ports at which programs of the node listen.
func (a *Rehearsal) ports() (list []Flow) {
	const most = 12
	for _, out := range a.Question.Cluster.Outside {
		own, _ := a.Capture.Uplink(out.Addr().Is6())
		for _, l := range a.Capture.Listeners {
			at := l.At.Addr().Unmap()
			f := Flow{Kind: ToPort, From: From{Address: out.Addr()}, To: netip.AddrPortFrom(own, l.At.Port()), Protocol: unix.IPPROTO_TCP}
			f.Name = fmt.Sprintf("the outside to the node's port %d, %s", l.At.Port(), own)
			if l.Protocol == f.Protocol && (at == own || at.IsUnspecified() && (at.Is6() || own.Is4())) && len(list) < most &&
				!slices.ContainsFunc(list, func(g Flow) bool { return g.To == f.To }) {
				list = append(list, f)
			}
		}
	}
	return list
}

// hold connects for each flow by TCP, and leaves the connections open.
func (p *Replay) hold(ctx context.Context, flows []Flow) map[string]*replica.Connection {
	held := map[string]*replica.Connection{}
	for i := range flows {
		if f := &flows[i]; f.Protocol == unix.IPPROTO_TCP && !f.Big {
			call, _ := p.call(f)
			soon, cancel := context.WithTimeout(ctx, time.Second)
			if c, err := p.Replica.Open(soon, call); err == nil {
				held[f.Name] = c
			}
			cancel()
		}
	}
	return held
}

// hops returns where the node sends the packets of flows.
func (p *Replay) hops(ctx context.Context, flows []Flow) map[netip.Addr]string {
	hops := map[netip.Addr]string{}
	for _, f := range flows {
		to := f.Want
		if len(to) == 0 {
			to = []netip.AddrPort{f.To}
		}
		for _, at := range to {
			if _, known := hops[at.Addr()]; !known {
				hops[at.Addr()] = p.Replica.Hop(ctx, at.Addr())
			}
		}
	}
	return hops
}

// cut returns the held connections that no longer carry packets, although a new one does; of the other flows as well.
func (p *Replay) cut(ctx context.Context, held map[string]*replica.Connection, list []Outcome) (names []string) {
	soon, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	var mu sync.Mutex
	var all sync.WaitGroup
	for name, c := range held {
		all.Go(func() {
			defer c.Close()
			if _, err := c.Ask(soon); err != nil {
				mu.Lock()
				defer mu.Unlock()
				names = append(names, name)
			}
		})
	}
	all.Wait()
	slices.Sort(names)
	return names
}

// name finds the causes of the losses, in a copy of what the node would be, and which losses last.
func (a *Rehearsal) name(ctx context.Context, r *replica.Replica, spec *replica.Spec, was, now *replica.Capture, list []Outcome,
	o *Rehearsed) error {
	list = slices.DeleteFunc(list, func(f Outcome) bool { return f.Lost == 0 })
	if len(list) == 0 {
		return nil
	}
	var lost []Flow
	for _, f := range list {
		lost = append(lost, f.Flow)
	}
	second, err := replica.Build(ctx, now, spec)
	if err != nil {
		return err
	}
	defer second.Close()
	p := New(second)
	causes, err := p.Run(ctx, lost)
	if err != nil {
		return err
	}
	back := p.takeBack(ctx, was, now, causes)
	last, err := New(r).lasting(ctx, now, lost)
	if err != nil {
		o.NotTried = append(o.NotTried, fmt.Sprintf("which losses last: %v", err))
	}
	gone := slices.DeleteFunc(slices.Clone(o.Changed), func(line string) bool { return !strings.Contains(line, " -") || strings.Contains(line, "->") })
	for i := range list {
		f := &list[i]
		part, cause := -1, ""
		if at := slices.IndexFunc(causes, func(c Outcome) bool { return c.Flow.Name == f.Flow.Name }); at >= 0 {
			part, cause = causes[at].Part, back[f.Flow.Name]
		}
		one := newLoss(now, part)
		if cause == "" && len(gone) > 0 {
			cause = "gone: " + strings.Join(gone, ", ")
		}
		one.Rule = cause
		if part >= 0 {
			_ = r.Node.Do(ctx, func() error { one.describe(ctx, now, part); return nil })
		}
		to := &o.Lost
		if err == nil && !last[f.Flow.Name] {
			to = &o.Brief
		}
		result := Result{Name: f.Flow.Name, Kind: f.Flow.Kind, Service: f.Flow.Service, Node: f.Flow.From.Node, From: f.Flow.From.Address,
			To: f.Flow.To, Protocol: f.Flow.Protocol, Sent: f.Sent, Lost: f.Lost, Why: f.Why}
		same := slices.IndexFunc(*to, func(l Loss) bool {
			return l.Kind == one.Kind && l.Rule == one.Rule && l.Table == one.Table && l.Chain == one.Chain && l.Family == one.Family
		})
		if same < 0 {
			same, *to = len(*to), append(*to, *one)
		}
		(*to)[same].Flows = append((*to)[same].Flows, result)
	}
	return nil
}

// lasting returns the flows that are lost once kube-proxy and kubelet have written their rules again.
func (p *Replay) lasting(ctx context.Context, now *replica.Capture, lost []Flow) (map[string]bool, error) {
	if err := p.Replica.Rewrite(ctx, now); err != nil {
		return nil, err
	}
	list, err := p.look(ctx, lost)
	last := map[string]bool{}
	for _, f := range list {
		last[f.Flow.Name] = f.Lost > 0
	}
	return last, err
}

// takeBack finds the sysctl, route or routing rule whose change loses a flow that no rule loses: it is changed back.
func (p *Replay) takeBack(ctx context.Context, was, now *replica.Capture, causes []Outcome) map[string]string {
	type change struct {
		what     string
		old, new string
		key      string
		part     *replica.Part
	}
	var all []change
	for _, key := range keys(was) {
		if old, value := was.Sysctls[key], now.Sysctls[key]; old != value && value != "" {
			all = append(all, change{fmt.Sprintf("%s %s -> %s", strings.ReplaceAll(key, "/", "."), old, value), old, value, key, nil})
		}
	}
	for i := range was.Parts {
		if one := &was.Parts[i]; (one.Kind == replica.PartRoute || one.Kind == replica.PartRoutingRule) && !has(now, one) {
			all = append(all, change{what: "without the " + one.String(), part: one})
		}
	}
	found := map[string]string{}
	for _, c := range all {
		var open []Flow
		for _, o := range causes {
			if o.Part < 0 && found[o.Flow.Name] == "" {
				open = append(open, o.Flow)
			}
		}
		if len(open) == 0 || p.Replica.Try(ctx, c.key, c.old, c.part) != nil {
			continue
		}
		for _, o := range p.send(ctx, open, copies) {
			if o.Lost == 0 {
				found[o.Flow.Name] = c.what
			}
		}
		if c.part == nil && p.Replica.Try(ctx, c.key, c.new, nil) != nil {
			break
		}
	}
	return found
}

// keys returns the names of the sysctls: first those of the node, which set those of its links.
func keys(n *replica.Capture) []string {
	list := slices.Sorted(maps.Keys(n.Sysctls))
	slices.SortStableFunc(list, func(a, b string) int { return strings.Count(a, "/") - strings.Count(b, "/") })
	return list
}

func has(n *replica.Capture, p *replica.Part) bool {
	return slices.ContainsFunc(n.Parts, func(o replica.Part) bool { return identity(&o) == identity(p) })
}

// identity tells the parts of two captures of one namespace apart. Rules of the legacy backend are only counted.
func identity(p *replica.Part) string {
	one := *p
	if one.Position = 0; one.Kind == replica.PartRoute || one.Kind == replica.PartRoutingRule {
		return fmt.Sprintf("%s %d", one.String(), one.Family)
	}
	return one.String()
}

// changes lists what differs between two captures of one namespace.
func changes(was, now *replica.Capture) (list []string) {
	count := map[string][2]int{}
	policies := map[string]string{}
	group := func(p *replica.Part) string {
		switch {
		case p.Kind == replica.PartRoute || p.Kind == replica.PartRoutingRule:
			return p.Kind + "s"
		case p.Legacy:
			return "legacy " + p.FamilyName() + " " + p.Table
		}
		return p.FamilyName() + " " + p.Table
	}
	add := func(from, to *replica.Capture, at int) {
		have := map[string]int{}
		for i := range to.Parts {
			have[identity(&to.Parts[i])]++
		}
		for i := range from.Parts {
			p := &from.Parts[i]
			if id := identity(p); have[id] > 0 {
				have[id]--
				continue
			}
			n := count[group(p)]
			if p.Kind == replica.PartPolicy {
				policies[group(p)] += fmt.Sprintf(", %s -> %s", p.Chain, [2]string{"ACCEPT", "DROP"}[at])
			} else {
				n[at]++
			}
			count[group(p)] = n
		}
	}
	add(was, now, 0)
	add(now, was, 1)
	for _, what := range slices.Sorted(maps.Keys(count)) {
		line := what
		for at, sign := range []string{"-", "+"} {
			if n := count[what][at]; n > 0 {
				line += fmt.Sprintf(" %s%d", sign, n)
			}
		}
		list = append(list, line+policies[what])
	}
	for _, key := range keys(now) {
		if old, there := was.Sysctls[key]; there && old != now.Sysctls[key] {
			list = append(list, fmt.Sprintf("%s %s -> %s", strings.ReplaceAll(key, "/", "."), old, now.Sysctls[key]))
		}
	}
	for _, one := range []struct {
		what     string
		was, now int
	}{{"links", len(was.Links), len(now.Links)}, {"addresses", len(was.Addresses), len(now.Addresses)}, {"sets", len(was.Sets), len(now.Sets)}} {
		if one.was != one.now {
			list = append(list, fmt.Sprintf("%s %+d", one.what, one.now-one.was))
		}
	}
	return list
}

// ErrNoPods is returned where the kernel lacks the links that a replica needs.
var ErrNoPods = errors.New(noPods)

// NewRehearsal captures the node for a rehearsal. It needs CAP_NET_ADMIN.
func NewRehearsal(ctx context.Context, q Question, args []string) (*Rehearsal, error) {
	n, err := replica.Read(ctx, q.keep)
	if err != nil {
		return nil, err
	}
	if !n.HasVeth() {
		return nil, ErrNoPods
	}
	q.Cluster.Observe(n)
	return &Rehearsal{Question: q, Capture: n, Args: args}, nil
}
