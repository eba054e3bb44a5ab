// Package compare compares the rules of a node with those that kube-proxy writes.
package compare

import (
	"nodegate/internal/audit/expect"
	"nodegate/internal/audit/model"
	"nodegate/internal/ruleset"
)

// Difference is a place where the rules differ from kube-proxy's.
type Difference struct {
	Port    *model.Port // nil for what Services share
	Chain   *ruleset.Chain
	Missing *expect.Rule  // the first rule that is missing or, with Order, that comes too late
	Extra   *ruleset.Rule // the first that kube-proxy does not write here
	Order   bool          // all rules are there, but in another order
}

// Part is a chain that belongs to no Service, and kube-proxy's rules for it.
type Part struct {
	Chain *ruleset.Chain
	Write func(*expect.Sheet)
}

// Diff returns the differences, and the rules of a form that is not known: a later release may write them, so they are no difference.
func Diff(m *model.Model, parts []Part) (list []Difference, unknown []*ruleset.Rule) {
	d := differ{m: m}
	d.compareAll(parts)
	if len(d.list) == 0 {
		return nil, nil
	}
	d.list, d.count = nil, &counts{map[shape]int{}, map[shape]int{}, map[shape]int{}, map[string]int{}}
	d.compareAll(parts)
	return d.judge()
}

type differ struct {
	m     *model.Model
	sheet expect.Sheet
	list  []unit
	count *counts // of the second pass, which only rules that differ need
	at    []int   // scratch space
}

// unit is one chain, or the rules of one Service in shared chains, with a difference.
type unit struct {
	port    *model.Port
	chain   *ruleset.Chain // nil for shared chains
	missing []expect.Rule
	extra   []*ruleset.Rule
	late    *expect.Rule
}

func (d *differ) compareAll(parts []Part) {
	for _, part := range parts {
		d.own(nil, part.Chain, true, part.Write)
	}
	m := d.m
	for _, p := range m.Ports {
		d.sheet.Rules = d.sheet.Rules[:0]
		d.sheet.Shared(m, p)
		d.compare(p, nil, p.Lines, false)
		d.own(p, p.EXT, true, func(s *expect.Sheet) { s.External(m, p) })
		d.own(p, p.FW, false, func(s *expect.Sheet) { s.Firewall(p) })
		d.own(p, p.SVC, true, func(s *expect.Sheet) { s.Policy(m, p, false) })
		d.own(p, p.SVL, true, func(s *expect.Sheet) { s.Policy(m, p, true) })
	}
	for i := range m.Chains { // in the order of the save: see Model.each
		if c := &m.Chains[i]; c.Kind == "SEP" && c.Port != nil {
			d.sheet.Rules = d.sheet.Rules[:0]
			d.sheet.Endpoint(c.Port, c)
			d.written(c.Port, c.Chain, true)
		}
	}
	for _, r := range m.Strangers {
		d.sheet.Rules = d.sheet.Rules[:0]
		d.compare(nil, m.Chains[r.Chain].Chain, []*ruleset.Rule{r}, false)
	}
}

// own compares a chain with kube-proxy's rules for it.
func (d *differ) own(p *model.Port, c *ruleset.Chain, ordered bool, write func(*expect.Sheet)) {
	if c == nil || p != nil && c.Refs == 0 { // a chain without references is not used
		return
	}
	d.sheet.Rules = d.sheet.Rules[:0]
	write(&d.sheet)
	d.written(p, c, ordered)
}

// written compares a chain with the sheet.
func (d *differ) written(p *model.Port, c *ruleset.Chain, ordered bool) {
	if d.count == nil && len(d.sheet.Rules) == len(c.Rules) { // healthy: no copies
		i := 0
		for i < len(c.Rules) && d.sheet.Rules[i].Is(&c.Rules[i]) {
			i++
		}
		if i == len(c.Rules) {
			return
		}
	}
	have := make([]*ruleset.Rule, 0, len(c.Rules))
	for i := range c.Rules {
		if r := &c.Rules[i]; r.Target != "" {
			have = append(have, r)
		}
	}
	d.compare(p, c, have, ordered)
}

// compare compares the sheet with rules, as multisets, and if ordered also their order.
func (d *differ) compare(p *model.Port, c *ruleset.Chain, have []*ruleset.Rule, ordered bool) {
	want := d.sheet.Rules
	u := unit{port: p, chain: c}
	found := d.match(want, have)
	taken := make([]bool, len(have))
	last := -1
	for i, k := range found {
		if k < 0 {
			u.missing = append(u.missing, want[i])
			continue
		}
		taken[k] = true
		if last >= 0 && found[last] > k && ordered && u.late == nil && want[i].Flags&want[last].Flags&ruleset.ByRecent == 0 {
			late := want[i]
			u.late = &late
		}
		last = i
	}
	for k, r := range have {
		if !taken[k] {
			u.extra = append(u.extra, r)
		}
	}
	if d.count != nil {
		d.count.add(d, u, want, found)
	}
	if len(u.missing)+len(u.extra) > 0 || u.late != nil {
		d.list = append(d.list, u)
	}
}

// match returns, for each rule of want, the position of the same rule in have, or -1.
func (d *differ) match(want []expect.Rule, have []*ruleset.Rule) []int {
	d.at = d.at[:0]
	for i := range want {
		if i >= len(have) || !d.same(&want[i], have[i]) {
			break
		}
		d.at = append(d.at, i)
	}
	if len(d.at) == len(want) {
		return d.at
	}
	type key struct {
		chain                     int32
		target, destination, port string
	}
	byKey := make(map[key][]int, len(have))
	for k, r := range have[len(d.at):] {
		id := key{r.Chain, r.Target, r.Destination, r.Port}
		byKey[id] = append(byKey[id], k+len(d.at))
	}
	for i := len(d.at); i < len(want); i++ {
		w, at := &want[i], -1
		id := key{w.Chain, w.Target, w.Destination, w.Port}
		if id.chain == 0 && len(have) > 0 {
			id.chain = have[0].Chain
		}
		for n, k := range byKey[id] {
			if d.same(w, have[k]) {
				at = k
				byKey[id] = append(byKey[id][:n:n], byKey[id][n+1:]...)
				break
			}
		}
		d.at = append(d.at, at)
	}
	return d.at
}

func (d *differ) same(w *expect.Rule, r *ruleset.Rule) bool {
	return (w.Chain == 0 || w.Chain == r.Chain) && w.Is(r)
}
