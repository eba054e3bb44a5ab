// Package replay sends packets through a replica of the node, and names the rule, route or routing rule that loses them.
package replay

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"nodegate/internal/host/replica"
)

// Flow is one connection, which stands for all of its kind.
type Flow struct {
	Name    string `json:"name"`
	Kind    string `json:"kind"`              // of the destination: ToService and so on
	Service string `json:"service,omitempty"` // NAMESPACE/NAME[:PORT]
	From
	To       netip.AddrPort   `json:"to"`
	Protocol uint8            `json:"protocol"`
	Big      bool             `json:"-"` // with packets of the full MTU
	Want     []netip.AddrPort `json:"-"` // where it must arrive: the endpoints of a Service. Empty: at To
	Outside  bool             `json:"-"` // to another network, to which a tunnel may lead
	Hidden   bool             `json:"-"` // to a machine that knows no Pods
}

// From is a sender.
type From struct {
	Node    bool       `json:"node,omitempty"`
	Pod     bool       `json:"pod,omitempty"` // of this node
	Address netip.Addr `json:"from"`          // of a Pod, or of another machine
}

// Outcome is what became of a flow.
type Outcome struct {
	Flow
	At    []netip.AddrPort `json:"at,omitempty"` // what answered
	Sent  int              `json:"sent"`
	Lost  int              `json:"lost,omitempty"`
	Why   string           `json:"why,omitempty"`   // of the last loss
	Link  string           `json:"link,omitempty"`  // by which it leaves, if that may lead to another network than the cluster's
	Doubt string           `json:"doubt,omitempty"` // why a loss in the replica may be none on the node
	Own   bool             `json:"-"`               // it saw an address of the node as the sender's
	Part  int              `json:"-"`               // what loses it, or makes it leave by Link: an index of Capture.Parts, or -1
	Cured bool             `json:"-"`               // without the part the flow passes
}

// A flow is lost if it lacks an answer for so long, and while so many others, which no rule can lose, had theirs: on a busy machine
// everything takes its time.
const (
	patience = 200 * time.Millisecond
	controls = 20
	longest  = 20 * time.Second
)

const (
	copies = 4               // of each flow, since a rule may lose some
	few    = 20              // flows of which more copies are sent
	naming = 5 * time.Second // until no further cause is sought
)

// Replay sends flows through a replica.
type Replay struct {
	Replica *replica.Replica
	own     []netip.Addr
	pods    map[netip.Addr]int // the index of their End
	others  map[netip.Addr]int // senders on other machines; -1 if the node has no route to one
}

// New returns a Replay of a replica.
func New(r *replica.Replica) *Replay {
	p := &Replay{Replica: r, own: r.Capture.Own(), pods: map[netip.Addr]int{}, others: map[netip.Addr]int{}}
	for i, e := range r.Ends {
		for _, a := range e.Addresses() {
			p.pods[a] = i
		}
	}
	return p
}

// Run sends the flows, looks at the lost ones again, and names what loses them. Flows of Pods that the copy lacks are left out.
func (p *Replay) Run(ctx context.Context, flows []Flow) ([]Outcome, error) {
	list, err := p.look(ctx, flows)
	if err != nil {
		return nil, err
	}
	if p.Replica.Capture.Ambiguous() {
		if err := p.Replica.Load(ctx, nil); err != nil {
			return nil, err
		}
		const doubt = "nf_tables and the legacy backend both translate addresses, and the order in which they do cannot be read"
		if err := p.repeat(ctx, list, doubt); err != nil {
			return nil, err
		}
	}
	var open []*Outcome
	for i := range list {
		if list[i].Lost > 0 || list[i].Link != "" {
			open = append(open, &list[i])
		}
	}
	return list, p.name(ctx, open)
}

// look sends the flows, and the lost ones again.
func (p *Replay) look(ctx context.Context, flows []Flow) ([]Outcome, error) {
	flows = slices.DeleteFunc(slices.Clone(flows), func(f Flow) bool { // the copy lacks this Pod
		return slices.ContainsFunc(p.Replica.Missing, func(pod replica.Pod) bool {
			return slices.ContainsFunc(pod.Addresses, func(a netip.Addr) bool {
				return f.Address == a || f.To.Addr() == a || slices.ContainsFunc(f.Want, func(w netip.AddrPort) bool { return w.Addr() == a })
			})
		})
	})
	for i := range flows {
		from := flows[i].From
		if _, pod := p.pods[from.Address]; !from.Node && !pod {
			end, ok := p.Replica.Behind(from.Address)
			if p.others[from.Address] = end; !ok {
				p.others[from.Address] = -1
			}
		}
	}
	list := p.send(ctx, flows, 1)
	for range copies - 1 {
		var passed []int
		var more []Flow
		for i := range list {
			if list[i].Lost == 0 {
				passed, more = append(passed, i), append(more, list[i].Flow)
			}
		}
		for n, o := range p.send(ctx, more, 1) {
			list[passed[n]] = o
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return list, p.repeat(ctx, list, "")
}

// repeat looks at the lost flows again. Those that pass now are not lost, for a machine may be busy.
func (p *Replay) repeat(ctx context.Context, list []Outcome, doubt string) error {
	var lost []int
	var flows []Flow
	for i := range list {
		if list[i].Lost > 0 {
			lost, flows = append(lost, i), append(flows, list[i].Flow)
		}
	}
	if len(lost) > 0 {
		if err := p.Replica.Forget(ctx); err != nil {
			return err
		}
	}
	for n, o := range p.send(ctx, flows, copies) {
		o.Link = list[lost[n]].Link
		if list[lost[n]] = o; o.Lost == 0 {
			list[lost[n]].Doubt = doubt
		}
	}
	return ctx.Err()
}

// send sends all flows at once, several copies of each.
func (p *Replay) send(ctx context.Context, flows []Flow, copies int) []Outcome {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	list := make([]Outcome, len(flows))
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range flows {
		list[i] = Outcome{Flow: flows[i], Sent: copies, Part: -1}
		if len(flows[i].Want) > 1 || copies > 1 && len(flows) < few { // it may meet one of several endpoints
			list[i].Sent *= 2
		}
		for range list[i].Sent {
			all.Go(func() {
				why, link, at, own := p.try(ctx, &flows[i])
				mu.Lock()
				defer mu.Unlock()
				list[i].Own = list[i].Own || own
				if at.IsValid() && !slices.Contains(list[i].At, at) {
					list[i].At = append(list[i].At, at)
				}
				list[i].Link = cmp.Or(link, list[i].Link)
				if why != "" {
					list[i].Lost++
					list[i].Why = why
				}
			})
		}
	}
	done := make(chan struct{})
	go func() {
		all.Wait()
		close(done)
	}()
	start := time.Now()
	tick := time.NewTicker(patience / controls)
	defer tick.Stop()
	for answered := 0; (answered < controls || time.Since(start) < patience) && time.Since(start) < longest; {
		select {
		case <-done:
			return list
		case <-ctx.Done():
			<-done
			return list
		case <-tick.C:
			if p.Replica.Control(ctx) == nil {
				answered++
			}
		}
	}
	cancel()
	<-done
	return list
}

// try sends a flow once. why is "" if the right side answered; link is a tunnel by which it left; at is where it arrived;
// own: the sender had an address of the node there.
func (p *Replay) try(ctx context.Context, f *Flow) (why, link string, at netip.AddrPort, own bool) {
	call, outside := p.call(f)
	if outside && call.End < 0 {
		return fmt.Sprintf("the node has no route to the sender %s", f.Address), "", at, false
	}
	answer, err := p.Replica.Send(ctx, call)
	if ctx.Err() != nil {
		return "no answer", "", at, false
	}
	if err != nil {
		return err.Error(), "", at, false
	}
	want := f.Want
	if len(want) == 0 {
		want = []netip.AddrPort{f.To}
	}
	end, pod := p.pods[answer.At.Addr()]
	if answer.End >= 0 && !pod && !f.Outside && p.Replica.Ends[answer.End].Tunnel() {
		link = p.Replica.Ends[answer.End].Link
	}
	own = slices.Contains(p.own, answer.From.Addr())
	switch {
	case answer.End < 0 && answer.At == f.To && slices.Contains(p.Replica.Capture.Listeners, replica.Listener{Protocol: f.Protocol, At: f.To}):
		// NodeLocal DNSCache has the Service's address
	case !slices.Contains(want, answer.At):
		why = fmt.Sprintf("%s answered", answer.At)
	case pod && answer.End != end, answer.End >= 0 && slices.Contains(p.own, answer.At.Addr()):
		why = fmt.Sprintf("the packets leave by %s", p.Replica.Ends[answer.End].Link)
	case answer.End < 0 || pod || own:
	case outside:
		why = fmt.Sprintf("the packets arrive with the source %s, so the replies do not come back by this node", answer.From.Addr())
	case answer.From.Addr() != f.Address:
		why = fmt.Sprintf("the packets arrive with the source %s, which this node lacks", answer.From.Addr())
	case f.Hidden:
		why = "the packets leave with the address of the Pod"
	}
	return why, link, answer.At, own
}

// call returns the call of a flow. A sender outside has no end if the node has no route to it.
func (p *Replay) call(f *Flow) (call replica.Call, outside bool) {
	call = replica.Call{End: -1, To: f.To, Protocol: f.Protocol, Big: f.Big}
	if f.Node {
		return call, false
	}
	end, pod := p.pods[f.Address]
	if !pod {
		end = p.others[f.Address]
	}
	call.End, call.From = end, f.Address
	return call, !pod
}

// name finds what loses each flow, or sends it into a tunnel.
func (p *Replay) name(ctx context.Context, open []*Outcome) error {
	parts := p.Replica.Capture.Parts
	loaded := false
	defer func() {
		if loaded {
			_ = p.Replica.Load(context.WithoutCancel(ctx), nil)
		}
	}()
	const causes = 4
	deadline := time.Now().Add(naming)
	for range causes {
		if time.Now().After(deadline) {
			return ctx.Err()
		}
		i := slices.IndexFunc(open, func(o *Outcome) bool { return o.Lost == o.Sent && o.Part < 0 })
		if i < 0 {
			i = slices.IndexFunc(open, func(o *Outcome) bool { return o.Part < 0 })
		}
		if i < 0 || ctx.Err() != nil {
			return ctx.Err()
		}
		o := open[i]
		if loaded {
			if err := p.Replica.Load(ctx, nil); err != nil {
				return err
			}
		}
		traced, err := p.Replica.Trace(ctx, func() { p.send(ctx, []Flow{o.Flow}, copies) })
		if err != nil {
			return err
		}
		loaded = true
		part, found := -1, len(traced) > 0
		if found {
			part = traced[0]
		}
		if !found || parts[part].Own || !p.passes(ctx, o, []int{part}) {
			other, others := p.takeAway(ctx, o)
			switch {
			case others && (!found || parts[part].Own || p.passes(ctx, o, []int{other})):
				part, found = other, true
			case others: // several parts would lose it, one after the other, and it meets this one first
				p.share(ctx, open, o, part)
			case o.Kind == ToHostPort: // a rule that is missing
				found = false
			}
		}
		if !found {
			if part, found = p.denial(&o.Flow); found { // for all of them: a route that is missing besides cannot be tried
				for _, other := range open {
					if same, denied := p.denial(&other.Flow); denied && same == part && other.Part < 0 {
						other.Part = part
					}
				}
			}
		}
		if !found {
			part, found = p.detour(ctx, o)
		}
		if !found {
			open = slices.Delete(open, i, i+1)
			continue
		}
		o.Part = part
		if err := p.Replica.Load(ctx, map[int]bool{part: true}); err != nil {
			return err
		}
		var flows []Flow
		var same []*Outcome
		for _, o := range open {
			if o.Part < 0 || o.Part == part {
				flows, same = append(flows, o.Flow), append(same, o)
			}
		}
		for i, now := range p.send(ctx, flows, copies) {
			if now.Lost == 0 && (now.Link == "" || now.Link != same[i].Link) {
				same[i].Part, same[i].Cured = part, true
			}
		}
	}
	return nil
}

// share gives a part to the flows like the one that it is the first to lose, if it is the first to lose all of them.
func (p *Replay) share(ctx context.Context, open []*Outcome, with *Outcome, part int) {
	var flows []Flow
	var like []*Outcome
	for _, o := range open {
		if o.Part < 0 && o.Protocol == with.Protocol && o.Node == with.Node && o.Pod == with.Pod {
			flows, like = append(flows, o.Flow), append(like, o)
		}
	}
	if p.Replica.Load(ctx, nil) != nil {
		return
	}
	if traced, err := p.Replica.Trace(ctx, func() { p.send(ctx, flows, copies) }); err == nil && slices.Equal(traced, []int{part}) {
		for _, o := range like {
			o.Part = part
		}
	}
}

// denial returns the route by which the kernel refuses a flow.
func (p *Replay) denial(f *Flow) (part int, found bool) {
	for _, to := range append(slices.Clone(f.Want), f.To) {
		if part, found = p.Replica.Denial(to.Addr()); found {
			return part, true
		}
	}
	return -1, false
}
