package replay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
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
	Dir      string
	Stdin    []byte
}

// Rehearsed lists the effects of the command there, and on packets of the node.
type Rehearsed struct {
	Verdict   string      `json:"verdict"` // pass, fail or unknown
	Command   []string    `json:"command"`
	Exit      int         `json:"exit"`  // of the command
	Ended     bool        `json:"ended"` // in its time
	Left      int         `json:"left"`  // processes that still ran then
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
			o.Before = append(o.Before, f.Name)
			continue
		}
		f.Hidden = f.Outside && f.Own && f.Address.IsValid()
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
	c, err := cage.Run(limit, cage.Spec{Args: a.Args, Network: r.Node.FD(), Units: a.Units, Self: a.Self, Outside: a.Outside,
		Dir: a.Dir, Stdin: a.Stdin})
	done()
	if err != nil {
		return nil, fmt.Errorf("running %s: %w", a.Args[0], err)
	}
	defer c.Close()
	o.Exit, o.Ended, o.Left, o.Said, o.Would = c.Exit, c.Ended, c.Left, c.Said, c.Would()
	now, err := r.Again(ctx, a.Question.keep)
	if err != nil {
		return nil, err
	}
	o.Changed = changes(was, now)
	if err := r.Forget(ctx); err != nil { // a node's neighbours age
		return nil, err
	}
	o.Cut = cut(ctx, held) // before new ones, which a limit counts too
	if list, err = p.look(ctx, flows); err != nil {
		return nil, err
	}
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

// hold connects by TCP from each sender to two destinations of each kind, and leaves the connections open. More would meet limits that the
// node's own connections do not.
func (p *Replay) hold(ctx context.Context, flows []Flow) map[string]*replica.Connection {
	held, kinds := map[string]*replica.Connection{}, map[string]int{}
	for i := range flows {
		f := &flows[i]
		kind := fmt.Sprint(f.Kind, f.From)
		if f.Protocol == unix.IPPROTO_TCP && !f.Big && kinds[kind] < 2 {
			kinds[kind]++
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

// cut returns the held connections that carry no packets any more.
func cut(ctx context.Context, held map[string]*replica.Connection) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(held)) {
		soon, cancel := context.WithTimeout(ctx, time.Second)
		if _, err := held[name].Ask(soon); err != nil {
			names = append(names, name+" ("+err.Error()+")")
		}
		held[name].Close()
		cancel()
	}
	return names
}

// name finds the causes of the losses, in a copy of the changed node, and which losses last.
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
	var last map[string]bool // nil: all of them
	if !slices.Equal(ownRules(was), ownRules(now)) {
		last, err = New(r).lasting(ctx, now, lost)
	}
	if err != nil {
		o.NotTried = append(o.NotTried, fmt.Sprintf("which losses last: %v", err))
	}
	gone := slices.DeleteFunc(slices.Clone(o.Changed), func(line string) bool {
		return !strings.Contains(line, " -") || strings.Contains(line, "->")
	})
	for i := range list {
		f := &list[i]
		part, cause := -1, ""
		if at := slices.IndexFunc(causes, func(c Outcome) bool { return c.Name == f.Name }); at >= 0 {
			part, cause = causes[at].Part, back[f.Name]
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
		if err == nil && last != nil && !last[f.Name] {
			to = &o.Brief
		}
		same := slices.IndexFunc(*to, func(l Loss) bool {
			return l.Kind == one.Kind && l.Rule == one.Rule && l.Table == one.Table && l.Chain == one.Chain && l.Family == one.Family
		})
		if same < 0 {
			same, *to = len(*to), append(*to, *one)
		}
		(*to)[same].Flows = append((*to)[same].Flows, *f)
	}
	return nil
}

// ownRules returns kube-proxy's and kubelet's rules.
func ownRules(n *replica.Capture) (list []string) {
	for _, p := range n.Parts {
		if p.Position = 0; p.Own {
			list = append(list, fmt.Sprint(p.Family, p.String()))
		}
	}
	slices.Sort(list)
	return list
}

// lasting returns the flows that are lost once kube-proxy and kubelet have written their rules again.
func (p *Replay) lasting(ctx context.Context, now *replica.Capture, lost []Flow) (map[string]bool, error) {
	if err := p.Replica.Rewrite(ctx, now); err != nil {
		return nil, err
	}
	list, err := p.look(ctx, lost)
	last := map[string]bool{}
	for _, f := range list {
		last[f.Name] = f.Lost > 0
	}
	return last, err
}

// takeBack finds the sysctl whose change loses a flow that no rule loses: it is changed back.
func (p *Replay) takeBack(ctx context.Context, was, now *replica.Capture, causes []Outcome) map[string]string {
	found := map[string]string{}
	for _, key := range changedSysctls(was, now) {
		var open []Flow
		for _, o := range causes {
			if o.Part < 0 && found[o.Name] == "" {
				open = append(open, o.Flow)
			}
		}
		if len(open) == 0 || p.Replica.Set(ctx, key, was.Sysctls[key]) != nil {
			continue
		}
		for _, o := range p.send(ctx, open, copies) {
			if o.Lost == 0 {
				found[o.Name] = changed(key, was, now)
			}
		}
		_ = p.Replica.Set(ctx, key, now.Sysctls[key])
	}
	return found
}

// changedSysctls returns the names of the sysctls that differ: first the node's, which set its links'.
func changedSysctls(was, now *replica.Capture) []string {
	list := slices.DeleteFunc(slices.Sorted(maps.Keys(now.Sysctls)), func(key string) bool {
		old, there := was.Sysctls[key]
		return !there || old == now.Sysctls[key]
	})
	slices.SortStableFunc(list, func(a, b string) int { return strings.Count(a, "/") - strings.Count(b, "/") })
	return list
}

func changed(key string, was, now *replica.Capture) string {
	return fmt.Sprintf("%s %s -> %s", strings.ReplaceAll(key, "/", "."), was.Sysctls[key], now.Sysctls[key])
}

// changes lists what differs between two captures of one namespace. Rules of the legacy backend, which have no handles, are only counted.
func changes(was, now *replica.Capture) (list []string) {
	more, group := map[string]int{}, map[string]string{}
	for sign, c := range map[int]*replica.Capture{-1: was, 1: now} {
		for _, p := range c.Parts {
			if p.Position = 0; p.Kind == replica.PartSysctl {
				continue
			}
			id := fmt.Sprint(p.Family, p.String())
			more[id] += sign
			switch group[id] = p.FamilyName() + " " + p.Table; {
			case p.Kind == replica.PartRoute || p.Kind == replica.PartRoutingRule:
				group[id] = p.Kind + "s"
			case p.Kind == replica.PartPolicy:
				group[id] += ", policy DROP of " + p.Chain
			case p.Legacy:
				group[id] = "legacy " + group[id]
			}
		}
	}
	count := map[string][2]int{}
	for id, n := range more {
		c := count[group[id]]
		c[0], c[1] = c[0]+max(-n, 0), c[1]+max(n, 0)
		count[group[id]] = c
	}
	count["links"] = [2]int{max(len(was.Links)-len(now.Links), 0), max(len(now.Links)-len(was.Links), 0)}
	for _, what := range slices.Sorted(maps.Keys(count)) {
		for at, sign := range []string{"-", "+"} {
			if n := count[what][at]; n > 0 {
				list = append(list, fmt.Sprintf("%s %s%d", what, sign, n))
			}
		}
	}
	for _, key := range changedSysctls(was, now) {
		list = append(list, changed(key, was, now))
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
