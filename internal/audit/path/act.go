package path

import (
	"net/netip"
	"strconv"
)

// act applies actions from the first on, and returns the states that go on behind the rule.
func (w *walk) act(c *chain, r *rule, actions []action, s state, unsure string, o *out, depth int) []state {
	for i := range actions {
		a := &actions[i]
		did := func(e Effect) state {
			t := s.step(w, c, r, a.text, e)
			t.last.Unsure = unsure
			return t
		}
		switch a.kind {
		case next:
		case mark:
			s.p.Mark = s.p.Mark.set(a.value, a.mask)
			s = did(Marks)
		case markConn, saveMark, loadMark:
			if !s.p.tracked() {
				continue
			}
			if a.kind == loadMark { // nfmask is mask, ctmask is value
				s.p.Mark = s.p.Mark.set(0, a.mask).mix(s.p.ConnMark, a.value)
				s = did(Marks)
			} else {
				s.p.markConn(a)
			}
		case untrack:
			if s.p.early && s.p.State != StateUntracked {
				s.p.State = StateUntracked
				s = did(Untracks)
			}
		case zone:
			if s.p.early {
				s.p.Zone = a.value
				s = did(Passes)
			}
		case divert, queue:
			return w.handOver(c, r, a, s, did, o)
		case jump, branch:
			return w.enter(c, a, did(Passes), o, depth)
		case spread:
			return w.spread(c, r, a, s, unsure, o, depth)
		default:
			return w.end(a, s, did, o)
		}
	}
	return []state{s}
}

// tracked reports whether conntrack knows the packet's connection.
func (p *Packet) tracked() bool {
	return !p.early && p.State != StateUntracked && p.State != StateInvalid
}

// markConn applies CONNMARK to the connection's mark.
func (p *Packet) markConn(a *action) {
	if a.kind == markConn {
		p.ConnMark = p.ConnMark.set(a.value, a.mask)
	} else {
		p.ConnMark = p.ConnMark.set(0, a.mask).mix(p.Mark, a.value)
	}
}

// mix returns m ^ (other & bits).
func (m Mark) mix(other Mark, bits uint32) Mark {
	return Mark{Value: m.Value ^ other.Value&bits, Unknown: m.Unknown | other.Unknown&bits}
}

// end applies an action that ends the chain.
func (w *walk) end(a *action, s state, did func(Effect) state, o *out) []state {
	does := a.kind
	if does == toOther && (w.hook == Postrouting || w.hook == Input) {
		does = fromOther // NETMAP
	}
	switch does {
	case accept:
		o.accepted = merge(o.accepted, did(Accepts))
	case drop:
		w.finish(did(Drops), Dropped)
	case reject:
		w.finish(did(Drops), Rejected)
	case back:
		o.through = merge(o.through, did(Returns))
	case toOther:
		t := did(Changes)
		t.p.kept = a.to.IsSingleIP() && t.p.Destination == a.to && (a.port == 0 || a.port == t.p.Port)
		if !t.p.dnat {
			t.p.Original = t.p.Destination
		}
		t.p.dnat, t.p.ToNode, t.p.Unnamed, t.p.NotTo = true, Unknown, false, netip.Prefix{}
		t.p.Destination, t.p.leaves = a.to, ""
		if a.own {
			t.p.ToNode = Yes
		}
		if a.port != 0 {
			t.p.Port = a.port
		}
		o.accepted = merge(o.accepted, t)
	case fromOther:
		t := did(Sources)
		t.p.snat, t.p.Source = true, a.to
		o.accepted = merge(o.accepted, t)
	default: // handed over: the other program accepts, drops or repeats
		t := did(Passes)
		t.doubts(nil, false)
		on := t
		t.weight, on.weight = t.weight/2, t.weight/2
		w.finish(t, Lost)
		o.accepted = merge(o.accepted, on)
		return []state{}
	}
	return nil
}

// handOver gives a packet to a program of this node. Without a program that listens, the kernel drops it (tproxy_tg4 of
// net/netfilter/xt_TPROXY.c, nf_queue of net/netfilter/nf_queue.c).
func (w *walk) handOver(c *chain, r *rule, a *action, s state, did func(Effect) state, o *out) []state {
	listens := Unknown
	what := "a program that listens on port " + strconv.Itoa(int(a.port))
	if a.kind == queue {
		what = "a program that listens on queue " + strconv.Itoa(int(a.port))
		if w.node.Listens != nil {
			listens = w.node.Listens(a.port)
		}
	}
	if listens != Yes && !a.bypass {
		lost := did(Drops)
		if lost.last.Does += " without a listener"; listens == Unknown {
			lost.weight /= 2
			lost.doubts(w.condition(c, r, what), true)
		}
		w.finish(lost, Dropped)
		if listens == No {
			return nil
		}
		s.weight /= 2
		s.doubts(nil, false)
	}
	if a.kind == queue && (listens != No || !a.bypass) {
		return w.end(&action{kind: handedOver, text: a.text}, s, did, o)
	}
	t := did(Changes)
	if a.kind == queue {
		t = did(Accepts)
	} else {
		t.p.ToNode, t.p.Mark = Yes, t.p.Mark.set(a.value, a.mask)
	}
	t.weight = s.weight
	t.doubtAs(s)
	o.accepted = merge(o.accepted, t)
	return nil
}

// enter walks the chain of a jump or goto.
func (w *walk) enter(c *chain, a *action, s state, o *out, depth int) []state {
	to := c.chain(a.chain)
	if to == nil { // no kernel holds such a rule
		s.doubts(nil, false)
		return []state{s}
	}
	inner := w.chain(to, s, depth+1)
	for _, t := range inner.accepted {
		o.accepted = merge(o.accepted, t)
	}
	if a.kind == branch {
		for _, t := range inner.through {
			o.through = merge(o.through, t)
		}
		return nil
	}
	rejoin(inner.through, s)
	for i := range inner.through { // a chain that came to nothing decided nothing
		if t := &inner.through[i]; t.p == s.p {
			t.last = s.last.before
		}
	}
	return inner.through
}

// spread sends a packet to several chains by their chance.
func (w *walk) spread(c *chain, r *rule, a *action, s state, unsure string, o *out, depth int) (after []state) {
	apply := func(one action, t state) {
		for _, t := range w.act(c, r, []action{one}, t, unsure, o, depth) {
			after = merge(after, t)
		}
	}
	if a.choose != nil {
		list, found := a.choose(w.node, &s.p)
		if found == Yes {
			apply(list[0], s)
			return after
		}
		share := s
		if share.weight /= float64(len(list) + 1); found == Unknown {
			share.doubts(nil, false)
		}
		for _, one := range list {
			apply(one, share)
		}
		after = merge(after, share)
		rejoin(after, s)
		return after
	}
	left := 1.0
	for _, one := range a.choices {
		t := s
		t.weight = s.weight * one.chance
		left -= one.chance
		apply(one.action, t)
	}
	if left > 1e-9 {
		s.weight *= left
		after = merge(after, s)
	}
	return after
}
