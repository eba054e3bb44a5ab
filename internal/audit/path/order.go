package path

import (
	"math"
	"slices"
)

// sameTurn returns how many of the first chains run in an order that the rules do not show. The kernel runs chains with
// one priority in the reverse order of their registration (nf_hook_entries_grow), and no listing shows whether a chain
// of iptables is older than a chain of nft, or of the other backend. Nor does it show which of two tables of nft is older: kube-proxy's and
// other programs' tables are read apart.
func sameTurn(list []base) int {
	n, several := 1, false
	for n < len(list) && list[n].within == list[0].within && list[n].priority == list[0].priority && list[n].nat == list[0].nat {
		several = several || list[n].registrar() != list[0].registrar()
		n++
	}
	if several {
		return n
	}
	return 1
}

// registrar names the tables whose chains are in a known order.
func (b *base) registrar() string {
	if b.nat && b.program == "nft" {
		return b.shown // which is unique among nft's tables
	}
	return b.program
}

// anyOrder takes a packet through chains whose order is not known. If their order makes a difference,
// the packet takes the way of each order, and each way records the doubt.
func (w *walk) anyOrder(turn []base, hook string, s state) []state {
	type result struct {
		after []state
		ends  []ended
	}
	before := w.ends
	var results []result
	for _, order := range orders(turn) {
		w.ends = ends{}
		after := []state{s}
		for i := range order {
			after = w.turn(order[i:i+1], hook, after)
		}
		if one := (result{after, w.ends.list}); !slices.ContainsFunc(results, func(o result) bool {
			return sameStates(o.after, one.after) && sameEnds(o.ends, one.ends)
		}) {
			results = append(results, one)
		}
	}
	w.ends = before
	share := 1 / float64(len(results))
	var after []state
	for _, r := range results {
		adjust := func(s state) state {
			if s.weight *= share; len(results) > 1 {
				s.doubts(nil, false)
			}
			return s
		}
		for _, e := range r.ends {
			w.finish(adjust(e.state), e.end)
		}
		for _, s := range r.after {
			after = merge(after, adjust(s))
		}
	}
	rejoin(after, s)
	return after
}

// orders returns orders of chains in which the chains of each registrar come first once. The first to translate the packet decides.
func orders(turn []base) (orders [][]base) {
	var registrars []string
	groups := map[string][]base{}
	for _, b := range turn {
		name := b.registrar()
		if groups[name] == nil {
			registrars = append(registrars, name)
		}
		groups[name] = append(groups[name], b)
	}
	for i := range registrars {
		var order []base
		for _, p := range append(slices.Clip(registrars[i:]), registrars[:i]...) {
			order = append(order, groups[p]...)
		}
		orders = append(orders, order)
	}
	return orders
}

func sameStates(a, b []state) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(s state) bool {
		return !slices.ContainsFunc(b, func(o state) bool { return o.p == s.p && math.Abs(o.weight-s.weight) <= 1e-9 })
	})
}

// sameEnds reports whether as many packets have each end, by whatever rules.
func sameEnds(a, b []ended) bool {
	type fate struct {
		end End
		p   Packet
	}
	shares := map[fate]float64{}
	for _, e := range a {
		shares[fate{e.end, e.p}] += e.weight
	}
	for _, e := range b {
		shares[fate{e.end, e.p}] -= e.weight
	}
	for _, share := range shares {
		if math.Abs(share) > 1e-9 {
			return false
		}
	}
	return true
}
