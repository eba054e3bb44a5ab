package path

import (
	"math"
	"slices"
	"strings"

	"nodegate/internal/ruleset"
)

// Step is a rule that decided something on a packet's way.
type Step struct {
	Hook, Table, Chain string
	Source             string // of the rules
	Program            string // that changes the rule: iptables-nft
	Rule               string // in the syntax of its program; empty for a policy
	Line, Handle       int
	Does               string // ACCEPT, drop, "jump DOCKER"
	Unsure             string // the match that is not known, if the rule may match
	Effect             Effect

	before *Step
	of     *chain
	rule   *rule
}

// Effect is the effect of a step on the packet.
type Effect int8

// The effects of a step.
const (
	Passes   Effect = iota // leads on, for example to another chain
	Accepts                // ends the base chain
	Returns                // returns from a base chain, whose policy accepts
	Drops                  // or rejects
	Changes                // the destination
	Sources                // changes the source
	Marks                  // changes a mark
	Untracks               // excludes the packet from conntrack
)

// InZone begins Step.Does of a rule that sets the zone of conntrack.
const InZone = "CT zone "

// End is how a way ends.
type End int8

// The ends of a way.
const (
	Lost      End = iota // not known
	Delivered            // to this node
	Forwarded            // to another machine or a Pod
	Dropped
	Rejected
	Reached // the chain that the caller looked for
	Passed  // the hook at which the walk should end
)

func (e End) String() string {
	return [...]string{"unknown", "delivered", "forwarded", "dropped", "rejected", "reached", "passed"}[e]
}

// Way is one way of a packet through the rules.
type Way struct {
	End    End
	Packet Packet // at the end
	Chance float64
	Sure   bool  // false if the way depends on a match that is not known: Chance is then only a share
	Rare   bool  // with Open: one of the conditions usually concerns few packets, such as those above a rate
	Open   *Open // set if only conditions that the rules do not decide lead to this end, whatever the packet
	Steps  []Step
}

// Open is a condition of a rule that neither the rules nor the known facts decide: a set that could not be read, a quota.
type Open struct {
	Condition string
	At        Step // the rule with the condition
}

// state is a packet on its way.
type state struct {
	p      Packet
	weight float64
	doubt  int
	open   int   // how many of the doubts are about conditions that no packet decides
	cond   *Open // the first of these
	rare   bool  // one of these usually concerns few packets
	last   *Step
}

// doubts adds a doubt. It is about the condition of a rule that took the packet, or did not, if cond is not nil, otherwise about the
// packet.
func (s *state) doubts(cond *Open, took bool) {
	if s.doubt++; cond == nil {
		return
	}
	s.rare = s.rare || isRare(cond.Condition, took)
	if s.open++; s.cond == nil {
		s.cond = cond
	}
}

// Bounds of a walk. Rules in the kernel nest at most 16 deep (NFT_JUMP_STACK_SIZE); iptables has no bound below the number of chains.
const (
	maxDepth  = 64
	maxStates = 64
	maxMarks  = 16   // states with different marks
	maxEnds   = 1000 // from then on, an end also stands for others like it

	// The cost of a comparison is 1.
	costOfChain = 20
	costOfStep  = 5
)

// walk is one walk of one packet.
type walk struct {
	node  *Node
	visit func(table, chain string) Visit
	hook  string
	ends  ends
	known map[entering]*outcome // what became of a packet in a chain
	marks int                   // states with different marks that are followed
	left  int                   // comparisons that the walk may still make
}

// over reports whether the walk has reached its bound.
func (w *walk) over() bool { return w.left < 0 }

// lose ends the ways of packets that are not followed further.
func (w *walk) lose(list ...state) {
	for _, s := range list {
		s.doubts(nil, false)
		w.finish(s, Lost)
	}
}

func sameStep(a, b *Step) bool {
	return a == b || a != nil && b != nil && a.Line == b.Line && a.Rule == b.Rule && a.Chain == b.Chain && a.Table == b.Table &&
		a.Source == b.Source && a.Hook == b.Hook && a.Handle == b.Handle
}

func (s state) step(w *walk, c *chain, r *rule, does string, e Effect) state {
	step := &Step{Hook: w.hook, Source: c.source, Program: c.program, Table: c.shown, Chain: c.name, Does: does, Effect: e,
		before: s.last, of: c, rule: r}
	if r != nil {
		step.Rule, step.Line, step.Handle = r.text, r.line, r.handle
	} else {
		step.Line = c.line
	}
	s.last = step
	return s
}

func (s *Step) list() []Step {
	var all []Step
	for ; s != nil; s = s.before {
		all = append(all, *s)
	}
	slices.Reverse(all)
	return all
}

// out collects the states that leave a chain.
type out struct {
	through  []state // fell through, or returned
	accepted []state
}

// doubtLike takes over the doubts of a state that joins s, if it has more of them.
func (s *state) doubtLike(o state) {
	if o.doubt > s.doubt || o.doubt == s.doubt && o.open < s.open {
		s.doubtAs(o)
	}
}

// doubtAs takes over the doubts of another state.
func (s *state) doubtAs(o state) { s.doubt, s.open, s.cond, s.rare = o.doubt, o.open, o.cond, o.rare }

// merge adds a state, and joins it with one that differs only in its history.
func merge(list []state, s state) []state {
	for i := range list {
		if list[i].p == s.p {
			list[i].weight += s.weight
			list[i].doubtLike(s)
			return list
		}
	}
	return append(list, s)
}

// widen joins states that differ only in marks: the bits that differ are then not known. Three hundred
// rules that may set a bit would otherwise lead to more states than a walk can follow.
func widen(list []state) (joined []state) {
	like := map[Packet]int{}
	for _, s := range list {
		key := s.p
		key.Mark, key.ConnMark = Mark{}, Mark{}
		i, known := like[key]
		if !known {
			like[key] = len(joined)
			joined = append(joined, s)
			continue
		}
		o := &joined[i]
		o.p.Mark, o.p.ConnMark = o.p.Mark.or(s.p.Mark), o.p.ConnMark.or(s.p.ConnMark)
		o.weight += s.weight
		o.doubtLike(s)
	}
	return joined
}

// rejoin removes the doubt of a state that left s and came back whole.
func rejoin(after []state, s state) {
	if len(after) == 1 && math.Abs(after[0].weight-s.weight) <= 1e-9*s.weight {
		after[0].doubtAs(s)
	}
}

// rules takes a packet through the rules of a chain.
func (w *walk) rules(c *chain, s state, depth int) (o out) {
	live := []state{s}
	for i := 0; i < len(c.rules) && len(live) > 0; i++ {
		if w.left -= len(live); w.over() {
			w.lose(live...)
			return o
		}
		r := c.rule(i)
		var after []state
		for _, s := range live {
			took, unsure, open := r.answer(w.node, &s.p)
			if took == No {
				if len(live) == 1 { // most rules: nothing to copy
					after = live
					break
				}
				after = merge(after, s)
				continue
			}
			w.left -= costOfStep
			var cond *Open
			if open && !c.isProxys() { // its session affinity
				cond = w.condition(c, r, unsure)
			}
			for _, s := range w.rule(c, r, s, took, unsure, cond, &o, depth) {
				after = merge(after, s)
			}
		}
		if live = after; len(live) > w.marks {
			live = widen(live)
		}
	}
	for _, s := range live {
		o.through = merge(o.through, s)
	}
	return o
}

// answer returns whether a rule takes a packet, and the condition that is not known. It is open if no packet decides it.
func (r *rule) answer(n *Node, p *Packet) (a Answer, unsure string, open bool) {
	a, open = Yes, true
	for i := range r.matches {
		m := &r.matches[i]
		one := Unknown
		if m.test != nil {
			one = m.test(n, p)
		}
		switch one {
		case No:
			return No, "", false
		case Unknown:
			a, open = Unknown, open && m.test == nil
			if unsure == "" {
				unsure = m.text
			}
		}
	}
	if r.chance == 0 {
		return No, "", false
	}
	return a, unsure, open && a == Unknown
}

// isProxys reports whether kube-proxy owns a chain.
func (c *chain) isProxys() bool {
	return strings.HasPrefix(c.name, "KUBE-") || c.table.name == ruleset.KubeProxyTable
}

// condition describes an open condition of a rule.
func (w *walk) condition(c *chain, r *rule, text string) *Open {
	at := (state{}).step(w, c, r, "", Passes).last
	return &Open{Condition: text, At: *at}
}

// rule applies a rule that takes s, or may take it, and returns the states that go on behind it.
func (w *walk) rule(c *chain, r *rule, s state, took Answer, unsure string, cond *Open, o *out, depth int) []state {
	var after []state
	taken := s
	switch {
	case took == Unknown:
		rest := s
		rest.weight, taken.weight = s.weight/2, s.weight/2
		rest.doubts(cond, false)
		taken.doubts(cond, true)
		after = append(after, rest)
	case r.chance < 1:
		rest := s
		rest.weight = s.weight * (1 - r.chance)
		taken.weight = s.weight * r.chance
		after = append(after, rest)
	}
	for _, t := range w.act(c, r, r.actions, taken, unsure, o, depth) {
		after = merge(after, t)
	}
	if took == Unknown {
		rejoin(after, s)
	}
	return after
}
