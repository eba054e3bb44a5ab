package datapath

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"time"

	"nodegate/internal/host/netns"
)

// ServiceTrace is the way of one real connection's packets through the rules of the node, as the kernel reports it.
type ServiceTrace struct {
	Address string         `json:"address"`          // as given
	From    netip.AddrPort `json:"from"`             // the client
	To      netip.AddrPort `json:"to"`               // the resolved address
	Proto   Proto          `json:"proto"`            // tcp or dns-udp
	OfNode  bool           `json:"ofNode"`           // the node itself connected, not a Pod
	Failed  string         `json:"failed,omitempty"` // the reason in a word or two; "" if the connection succeeded
	Request Passage        `json:"request"`          // the first packet of the client
	Reply   Passage        `json:"reply"`            // the first packet that came back

}

// Passage is the way of one packet.
type Passage struct {
	Steps []PassageStep `json:"steps"`          // rules and policies that it met, in order
	End   string        `json:"end"`            // left, delivered, dropped, queued, lost after HOOK, lost in HOOK; "": never came
	Link  string        `json:"link,omitempty"` // by which it left
	Mark  uint32        `json:"mark,omitempty"` // at the end
}

// PassageStep is a rule or policy that took a packet.
type PassageStep struct {
	Hook     string `json:"hook"`             // prerouting, input, forward, output or postrouting
	Family   string `json:"family"`           // of the table: ip, ip6, inet
	Table    string `json:"table"`            // its name
	Chain    string `json:"chain"`            // the rule's chain
	Handle   uint64 `json:"handle,omitempty"` // 0 for the policy of the chain
	Position int    `json:"-"`                // of the rule in its chain, from 1
	Does     string `json:"does"`             // its verdict: accept, drop, "jump CHAIN"
	Rule     string `json:"rule,omitempty"`   // absent for a policy, or if it is not known

	family byte
}

// Died returns the step that dropped the packet, or nil.
func (p *Passage) Died() *PassageStep {
	if p.End != endDropped && p.End != endQueued || len(p.Steps) == 0 {
		return nil
	}
	return &p.Steps[len(p.Steps)-1]
}

const (
	endLeft      = "left"
	endDelivered = "delivered"
	endDropped   = "dropped"
	endQueued    = "queued"
)

// TraceService makes one connection to an address and returns the way of its packets. A failed connection is a result.
func TraceService(ctx context.Context, addr string, o ServiceOptions) (ServiceTrace, error) {
	node, err := netns.Current(ctx)
	if err != nil {
		return ServiceTrace{}, err
	}
	defer node.Close()
	return traceIn(ctx, node, addr, o)
}

// traceIn connects from the namespace in the options, else from the node, and traces in the node's.
func traceIn(ctx context.Context, node *netns.Namespace, addr string, o ServiceOptions) (ServiceTrace, error) {
	o.N = 1
	o, err := o.withDefaults()
	t := ServiceTrace{Address: addr, Proto: o.Proto, OfNode: true}
	if err != nil {
		return t, fmt.Errorf("tracing a connection to %s: %w", addr, err)
	}
	from := node
	if o.Netns != "" {
		if from, err = netns.Open(ctx, o.Netns); err != nil {
			return t, err
		}
		defer from.Close()
		if t.OfNode, err = from.Same(node); err != nil {
			return t, err
		}
	}
	if err := t.connect(ctx, node, from, o); err != nil {
		return t, fmt.Errorf("tracing a connection to %s: %w", addr, err)
	}
	return t, nil
}

func (t *ServiceTrace) connect(ctx context.Context, node, from *netns.Namespace, o ServiceOptions) error {
	var err error
	if t.To, err = resolve(ctx, t.Address); err != nil {
		return err
	}
	p, err := newProber(ctx, node, from, t.To, o)
	if err != nil {
		return err
	}
	defer p.table.Close()
	s, err := from.Attempt(ctx, p.proto, p.source, t.To, false)
	if err != nil {
		return err
	}
	t.From = s.From
	flow := netns.Tuple{From: t.From, To: t.To, Proto: p.proto}
	tracer, err := node.Trace(ctx, flow)
	if err != nil {
		s.Close()
		return err
	}
	defer tracer.Close()
	t.Failed = p.try(ctx, s).failed
	events, err := tracer.Events(ctx, flow, 100*time.Millisecond)
	t.Request, t.Reply = passageOf(events, false), passageOf(events, true)
	return err
}

// passageOf returns the way of the first packet of a direction.
func passageOf(events []netns.TraceEvent, reply bool) Passage {
	p := Passage{Steps: []PassageStep{}}
	i := slices.IndexFunc(events, func(e netns.TraceEvent) bool { return e.Reply == reply })
	if i < 0 {
		return p
	}
	hook, last := "", false
	for _, e := range events[i:] {
		if e.Reply != reply {
			continue
		}
		if at, final, is := e.Place(); is {
			if first := at == "prerouting" || at == "output"; first && !final && hook != "" && hook != at {
				break // the next packet
			}
			hook, last, p.Mark = at, final, e.Mark
			continue
		}
		if e.Own || e.Code == netns.Continue && e.Handle == 0 {
			continue
		}
		p.Mark = e.Mark
		if p.Link = ""; e.Out != 0 {
			p.Link = fmt.Sprintf("link %d", e.Out)
			if link, err := net.InterfaceByIndex(e.Out); err == nil {
				p.Link = link.Name
			}
		}
		step := PassageStep{Hook: hook, Family: netns.FamilyName(e.Family), Table: e.Table, Chain: e.Chain, Handle: e.Handle,
			Position: e.Position, Does: doesName(e), family: e.Family}
		p.Steps = append(p.Steps, step)
		if e.Code == netns.Drop || e.Code&0xff == netns.Queue {
			p.End = map[bool]string{true: endDropped, false: endQueued}[e.Code == netns.Drop]
			return p
		}
	}
	switch {
	case last && hook == "postrouting":
		p.End = endLeft
	case last && hook == "input":
		p.End = endDelivered
	case last:
		p.End = "lost after " + hook
	default:
		p.End = "lost in " + hook
	}
	return p
}

func doesName(e netns.TraceEvent) string {
	switch e.Code {
	case netns.Drop:
		return "drop"
	case netns.Accept:
		return "accept"
	case netns.Jump:
		return "jump " + e.Target
	case netns.Goto:
		return "goto " + e.Target
	case netns.Return:
		return "return"
	case netns.Continue:
		return "continue"
	case netns.Stolen:
		return "stolen"
	}
	if e.Code&0xff == netns.Queue {
		return fmt.Sprintf("queue %d", uint32(e.Code)>>16)
	}
	return fmt.Sprintf("verdict %d", e.Code)
}

// Render writes the trace for people.
func (t *ServiceTrace) Render(w io.Writer) error {
	who := "the node"
	if !t.OfNode {
		who = "a Pod"
	}
	result := "succeeded"
	if t.Failed != "" {
		result = "failed: " + t.Failed
	}
	if _, err := fmt.Fprintf(w, "one connection from %s (%s) to %s: %s\n", who, t.From, t.To, result); err != nil {
		return err
	}
	t.Request.render(w, "request")
	if t.Reply.End != "" {
		t.Reply.render(w, "reply")
	}
	return nil
}

func (p *Passage) render(w io.Writer, what string) {
	if p.End == "" {
		fmt.Fprintf(w, "%s: no packet came to this node's hooks\n", what)
		return
	}
	fmt.Fprintf(w, "%s: %s\n", what, p.describe())
	hook := ""
	for _, s := range p.Steps {
		if s.Does == "continue" && s.Rule == "" {
			continue
		}
		if s.Hook != hook {
			hook = s.Hook
			fmt.Fprintf(w, "  %s\n", hook)
		}
		rule := s.Rule
		if rule == "" && s.Handle == 0 {
			rule = "policy"
		} else if rule == "" {
			rule = fmt.Sprintf("rule with handle %d", s.Handle)
		}
		fmt.Fprintf(w, "    %s %s %s: %s  (%s)\n", s.Family, s.Table, s.Chain, rule, s.Does)
	}
}

// describe returns the end of a packet in words.
func (p *Passage) describe() string {
	switch s := p.Died(); {
	case s != nil && s.Handle == 0:
		return fmt.Sprintf("dropped by the policy of chain %s of table %s %s", s.Chain, s.Family, s.Table)
	case s != nil && p.End == endQueued:
		return fmt.Sprintf("handed to a program (%s) by chain %s of table %s %s: without a listener the kernel drops "+
			"it", s.Does, s.Chain, s.Family, s.Table)
	case s != nil:
		what := fmt.Sprintf("handle %d", s.Handle)
		if s.Rule != "" {
			what = "rule: " + s.Rule
		}
		return fmt.Sprintf("dropped by chain %s of table %s %s, %s", s.Chain, s.Family, s.Table, what)
	case p.End == endLeft && p.Link == "":
		return "met no rule that drops it"
	case p.End == endLeft:
		return "left the node by " + p.Link
	case p.End == endDelivered:
		return "delivered to a process of this node"
	case p.isUnrouted():
		return p.End + ": the routing decision has no way for it (no route, a blackhole, rp_filter)"
	}
	return p.End + ": by something that nf_tables' trace does not show (iptables-legacy, a link's hook, eBPF)"
}
