package path

import (
	"cmp"
	"math"
	"slices"

	"nodegate/internal/ruleset"
	"nodegate/internal/sorted"
)

// The hooks of netfilter for packets of IP.
const (
	Prerouting  = "PREROUTING"
	Input       = "INPUT"
	Forward     = "FORWARD"
	Output      = "OUTPUT"
	Postrouting = "POSTROUTING"
)

// table is a table of iptables or nftables. Chains are made ready when they are first walked.
type table struct {
	source  string
	program string // that changes it: iptables-nft
	name    string
	shown   string // with its family, for nftables
	find    func(name string) *chain
	chains  map[string]*chain
}

func (t *table) chain(name string) *chain {
	c, known := t.chains[name]
	if !known {
		c = t.find(name)
		t.chains[name] = c
	}
	return c
}

// chain is a chain whose rules are read when they are first walked: a large cluster has 150,000.
type chain struct {
	*table
	name  string
	line  int
	rules []*rule
	read  func(i int) *rule
}

func (c *chain) rule(i int) *rule {
	if c.rules[i] == nil {
		c.rules[i] = c.read(i)
	}
	return c.rules[i]
}

// base is a base chain: one of a hook.
type base struct {
	*chain
	hook     string
	priority int
	within   int // order among chains of type nat, which share one priority; elsewhere the priority
	nat      bool
	drops    bool     // its policy
	devices  []string // of a chain at a hook of links
}

// Rules are the rules of a node for one address family, in the order of their hooks. They are not safe for concurrent use.
type Rules struct {
	node  Node
	hooks map[string][]base
	links []base // at hooks of links and bridges
	sets  map[string]*ruleset.IPSet
	bound [2]int // comparisons of one walk: with all marks, and without those that are not known
}

// The priorities of iptables' tables (include/uapi/linux/netfilter_ipv4.h). All chains of type nat
// run at these priorities, in their own order (nf_nat_register_fn).
const (
	conntrack      = -200
	natDestination = -100
	natSource      = 100
)

func iptablesPriority(table, hook string) int {
	switch table {
	case "raw":
		return -300
	case "mangle":
		return -150
	case "nat":
		return natPriority(hook)
	case "security":
		return 50
	}
	return 0
}

func iptablesHooks(table string) []string {
	switch table {
	case "raw":
		return []string{Prerouting, Output}
	case "nat":
		return []string{Prerouting, Input, Output, Postrouting}
	case "filter", "security":
		return []string{Input, Forward, Output}
	}
	return []string{Prerouting, Input, Forward, Output, Postrouting}
}

func natPriority(hook string) int {
	if hook == Prerouting || hook == Output {
		return natDestination
	}
	return natSource
}

// New returns the rules of one address family from all backends.
func New(sets []*ruleset.Set, family string, node Node) *Rules {
	all := &Rules{node: node, hooks: map[string][]base{}, bound: [2]int{300_000, 1_000_000}}
	for _, set := range sets {
		if set.IPSets != nil {
			all.sets = set.IPSets
		}
		for _, save := range set.Saves {
			if save.Family == family {
				all.addSave(save)
			}
		}
		for _, t := range slices.Backward(append(slices.Clip(set.NFT), set.Foreign...)) {
			if slices.Contains([]string{family, "inet", "bridge", "netdev", "arp"}, t.Family) {
				all.addNFT(set.Source, t, family)
			}
		}
	}
	for hook := range all.hooks {
		sorted.By(all.hooks[hook], func(a, b base) int {
			return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(a.within, b.within))
		})
	}
	return all
}

// For returns the same rules with other facts about the node. Both share the rules that were read.
func (all *Rules) For(node Node) *Rules {
	one := *all
	node.Services = cmp.Or(node.Services, all.node.Services)
	one.node = node
	return &one
}

func (all *Rules) addSave(save *ruleset.Save) {
	for _, t := range save.Tables {
		own := t
		ready := &table{source: t.Source, program: program(save), name: t.Name, shown: t.Name, chains: map[string]*chain{}}
		ready.find = func(name string) *chain {
			c := own.Chain(name)
			if c == nil {
				return nil
			}
			return &chain{ready, name, int(c.Line), make([]*rule, len(c.Rules)), func(i int) *rule { return all.readRule(&c.Rules[i]) }}
		}
		for _, hook := range iptablesHooks(t.Name) {
			if c := t.Chain(hook); c != nil && c.Policy != "-" {
				all.hooks[hook] = append(all.hooks[hook], base{ready.chain(hook), hook, iptablesPriority(t.Name, hook),
					iptablesPriority(t.Name, hook), t.Name == "nat", c.Policy == "DROP", nil})
			}
		}
	}
}

// Visit is how a walk treats a chain.
type Visit int8

// How a walk treats a chain.
const (
	Follow Visit = iota
	Stop         // a way ends here: Reached
	Skip         // as if the chain were empty
)

// Walk follows a packet from its first hook to its ends, or to the end of the hook last, if one is
// given. visit returns how to treat a chain; nil follows all of them.
func (all *Rules) Walk(p Packet, last string, visit func(table, chain string) Visit) []Way {
	if p.State != StateNew && !p.reply.is {
		p.ConnMark.Unknown = ^uint32(0)
	}
	if p.ToNode == Unknown {
		p.ToNode = all.node.own(p.Destination)
	}
	p.leaves, p.Out = p.Out, ""
	return all.follow(visit, func(w *walk) {
		if p.dnat { // the hook that translated it is behind it
			w.translated(all, p)
			return
		}
		first, p := Prerouting, p
		if p.Own {
			first, p.In = Output, none
			p.route(&all.node)
			if lost := all.node.leave(&p); lost != "" {
				w.finish(state{p: p, weight: 1}.unrouted(w, lost), Dropped)
				return
			}
		} else {
			p.Out = none
		}
		states := w.pass(all, first, []state{{p: p, weight: 1}})
		if first != last {
			states = w.afterRouting(all, states, last)
		}
		for _, s := range states {
			w.finish(s, Passed)
		}
	})
}

// follow walks with all marks as long as the rules allow it, and otherwise without those that are not known. Rules
// that are too many for both leave the packet's end unknown; later walks then give up earlier.
func (all *Rules) follow(visit func(table, chain string) Visit, from func(*walk)) []Way {
	for i, marks := range []int{maxMarks, 1} {
		w := &walk{node: &all.node, visit: visit, known: map[entering]*outcome{}, marks: marks, left: all.bound[i]}
		from(w)
		if !w.over() || i == 1 {
			if w.over() {
				all.bound[i] = max(all.bound[i]/4, 20_000)
			}
			return w.ways()
		}
		all.bound[i] = max(all.bound[i]/4, 5_000)
	}
	return nil
}

// Postrouting follows a packet of another machine or a Pod through the last hook alone.
func (all *Rules) Postrouting(p Packet, visit func(table, chain string) Visit) []Way {
	return all.follow(visit, func(w *walk) {
		for _, s := range w.pass(all, Postrouting, []state{{p: p, weight: 1}}) {
			w.finish(s, Forwarded)
		}
	})
}

// afterRouting takes packets to the hooks behind the routing decision. It returns those that are left after the hook last.
func (w *walk) afterRouting(all *Rules, states []state, last string) (left []state) {
	var in, through []state
	for _, s := range states {
		if s.p.dnat && s.p.ToNode == Unknown {
			s.p.ToNode = all.node.own(s.p.Destination)
		}
		if s.p.ToNode == Unknown {
			s.weight /= 2
			s.doubts(nil, false)
			here := s
			here.p.ToNode = Yes
			in = append(in, here)
			s.p.ToNode = No
		}
		switch {
		case s.p.ToNode == Yes && !s.p.Own:
			in = append(in, s)
		default:
			if s.p.Out == none || s.p.dnat {
				s.p.route(&all.node)
			}
			if lost := w.node.lookup(&s.p); lost != "" {
				w.finish(s.unrouted(w, lost), Dropped)
				continue
			}
			through = append(through, s)
		}
	}
	for i := range in {
		in[i].p.Out = none
	}
	in = w.pass(all, Input, in)
	if last == Input {
		left = append(left, in...)
	} else {
		for _, s := range in {
			w.finish(s, Delivered)
		}
	}
	var own, others []state
	for _, s := range through {
		if s.p.Own {
			own = append(own, s)
		} else {
			others = append(others, s)
		}
	}
	others = w.pass(all, Forward, others)
	if last == Forward {
		return append(left, others...)
	}
	for _, s := range append(own, others...) {
		for _, s := range w.pass(all, Postrouting, []state{s}) {
			if s.p.ToNode == Yes {
				w.finish(s, Delivered)
			} else {
				w.finish(s, Forwarded)
			}
		}
	}
	return left
}

// pass takes packets through all base chains of a hook.
func (w *walk) pass(all *Rules, hook string, states []state) []state {
	return w.passAfter(all, hook, math.MinInt, states)
}

// passAfter takes packets through the base chains of a hook behind a priority.
func (w *walk) passAfter(all *Rules, hook string, priority int, states []state) []state {
	w.hook = hook
	list := all.hooks[hook]
	for len(list) > 0 && list[0].priority <= priority {
		list = list[1:]
	}
	for len(list) > 0 {
		n := sameTurn(list)
		after := w.turn(list[:n], hook, states)
		list = list[n:]
		states = after
		if len(states) > maxStates {
			w.lose(states...)
			return nil
		}
	}
	for i := range states {
		states[i].p.restore(hook, math.MaxInt)
	}
	return states
}

// turn takes packets through chains that have their turn together: one chain, or several in any order.
func (w *walk) turn(list []base, hook string, states []state) (after []state) {
	for _, s := range states {
		through := w.anyOrder
		if len(list) == 1 {
			through = w.enterBase
		}
		for _, t := range through(list, hook, s) {
			after = merge(after, t)
		}
	}
	return after
}

// enterBase takes a packet through the first chain, if the packet consults it.
func (w *walk) enterBase(list []base, hook string, s state) []state {
	b := &list[0]
	s.p.restore(hook, b.priority)
	if b.nat && !s.p.entersNAT(hook) {
		return []state{s}
	}
	s.p.early = b.priority < conntrack && (hook == Prerouting || hook == Output)
	after := w.base(b, s)
	for i := range after {
		after[i].p.early = false
	}
	return after
}

// base takes one packet through one base chain.
func (w *walk) base(b *base, s state) []state {
	o := w.chain(b.chain, s, 0)
	after := o.accepted
	for _, t := range o.through {
		if b.drops {
			w.finish(t.step(w, b.chain, nil, "policy DROP", Drops), Dropped)
			continue
		}
		after = merge(after, t)
	}
	rejoin(after, s)
	return after
}

func (w *walk) ways() []Way {
	list := make([]Way, 0, len(w.ends.list))
	for _, e := range w.ends.list {
		way := Way{End: e.end, Packet: e.p, Chance: e.weight, Sure: e.doubt == 0, Steps: e.last.list()}
		if e.doubt > 0 && e.doubt == e.open {
			way.Open, way.Rare = e.cond, e.rare
		}
		list = append(list, way)
	}
	sorted.By(list, func(a, b Way) int { return cmp.Compare(b.Chance, a.Chance) })
	return list
}
