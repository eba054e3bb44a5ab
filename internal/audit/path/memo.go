package path

// entering is a packet that enters a chain.
type entering struct {
	c    *chain
	hook string
	p    Packet
}

// outcome is the result of a chain for one packet of weight 1, without the steps before.
type outcome struct {
	out
	ends []ended
}

// chain takes a packet through a chain. The same packet has the same outcome wherever it enters the chain: nested
// chains cost their number, not the number of ways through them.
func (w *walk) chain(c *chain, s state, depth int) (o out) {
	if w.visit != nil {
		switch w.visit(c.table.name, c.name) {
		case Stop:
			w.finish(s, Reached)
			return o
		case Skip:
			o.through = []state{s}
			return o
		}
	}
	if w.left -= costOfChain; depth > maxDepth || w.over() {
		w.lose(s)
		return o
	}
	at := entering{c, w.hook, s.p}
	r, known := w.known[at]
	if !known {
		outside := w.ends
		w.ends = ends{}
		r = &outcome{out: w.rules(c, state{p: s.p, weight: 1}, depth)}
		r.ends, w.ends = w.ends.list, outside
		w.known[at] = r
	}
	return w.resume(s, r)
}

// resume returns the states that leave a chain, after the steps of the state that entered it.
func (w *walk) resume(s state, r *outcome) (o out) {
	follow := func(list []state) []state {
		after := make([]state, len(list))
		for i := range list {
			after[i] = w.after(s, list[i])
		}
		return after
	}
	for _, e := range r.ends {
		w.finish(w.after(s, e.state), e.end)
	}
	return out{follow(r.through), follow(r.accepted)}
}

// after returns the state t of a chain that s has entered.
func (w *walk) after(s, t state) state {
	t.weight *= s.weight
	t.doubt += s.doubt
	t.open += s.open
	t.rare = t.rare || s.rare
	if s.cond != nil {
		t.cond = s.cond
	}
	if t.last = w.join(s.last, t.last); t.last == nil {
		t.last = s.last
	}
	return t
}

// join copies steps behind others.
func (w *walk) join(before, steps *Step) *Step {
	if before == nil || steps == nil {
		return steps
	}
	w.left -= costOfStep
	one := *steps
	if one.before = before; steps.before != nil {
		one.before = w.join(before, steps.before)
	}
	return &one
}

// ends collects the ends of a walk.
type ends struct {
	list []ended
	at   map[endKey]int
	like map[fate]int
}

type ended struct {
	state
	end End
}

// endKey identifies the end of a packet by a rule.
type endKey struct {
	p     Packet
	end   End
	hook  string
	chain *chain
	rule  *rule
}

// fate is an end, whatever the packet's addresses and marks.
type fate struct {
	end        End
	sure       bool
	dnat, snat bool
	state      string
	toNode     Answer
}

func (w *walk) finish(s state, e End) {
	all := &w.ends
	key := endKey{p: s.p, end: e}
	if s.last != nil {
		key.hook, key.chain, key.rule = s.last.Hook, s.last.of, s.last.rule
	}
	if i, known := all.at[key]; known {
		o := &all.list[i]
		o.weight += s.weight
		o.doubtLike(s)
		return
	}
	like := fate{e, s.doubt == 0, s.p.dnat, s.p.snat, s.p.State, s.p.ToNode}
	if i, known := all.like[like]; known && len(all.list) >= maxEnds { // a blocklist has a thousand rules, and each may drop the packet
		all.list[i].weight += s.weight
		return
	}
	if all.at == nil {
		all.at, all.like = map[endKey]int{}, map[fate]int{}
	}
	all.at[key] = len(all.list)
	if _, known := all.like[like]; !known {
		all.like[like] = len(all.list)
	}
	all.list = append(all.list, ended{s, e})
}
