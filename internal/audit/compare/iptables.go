package compare

import (
	"fmt"
	"strings"

	"nodegate/internal/audit/expect"
	"nodegate/internal/audit/model"
	"nodegate/internal/ruleset"
)

// Part is a chain that belongs to no Service, and kube-proxy's rules for it.
type Part struct {
	Chain *ruleset.Chain
	Write func(*expect.Sheet)
}

// Diff returns the differences of a save, and the rules of a form that is not known: a later release may write them, so they are no
// difference.
func Diff(m *model.Model, parts []Part) (list []Difference, unknown []string) {
	d := saveDiffer{m: m}
	if d.compareAll(parts); len(d.list) == 0 {
		return nil, nil
	}
	d.countAgain()
	d.compareAll(parts)
	return d.judge()
}

type saveDiffer struct {
	differ
	m     *model.Model
	sheet expect.Sheet
}

func (d *saveDiffer) compareAll(parts []Part) {
	for _, part := range parts {
		d.own(nil, part.Chain, true, part.Write)
	}
	m := d.m
	for _, p := range m.Ports {
		d.sheet.Rules = d.sheet.Rules[:0]
		d.sheet.Shared(m, p)
		d.compare(Difference{Own: true, Service: p.Name}, p.Lines, false)
		d.own(p, p.EXT, true, func(s *expect.Sheet) { s.External(m, p) })
		d.own(p, p.FW, false, func(s *expect.Sheet) { s.Firewall(p) })
		d.own(p, p.SVC, true, func(s *expect.Sheet) { s.Policy(m, p, false) })
		d.own(p, p.SVL, true, func(s *expect.Sheet) { s.Policy(m, p, true) })
	}
	for i := range m.Chains { // in the order of the save: see Model.each
		if c := &m.Chains[i]; c.Kind == "SEP" && c.Port != nil {
			d.own(nil, c.Chain, true, func(s *expect.Sheet) { s.Endpoint(c.Port, c) })
		}
	}
	for _, r := range m.Strangers {
		d.sheet.Rules = d.sheet.Rules[:0]
		d.compare(Difference{Chain: m.Chains[r.Chain].Chain}, []*ruleset.Rule{r}, false)
	}
}

// own compares a chain with kube-proxy's rules for it.
func (d *saveDiffer) own(p *model.Port, c *ruleset.Chain, ordered bool, write func(*expect.Sheet)) {
	if c == nil || p != nil && c.Refs == 0 { // a chain without references is not used
		return
	}
	d.sheet.Rules = d.sheet.Rules[:0]
	write(&d.sheet)
	if len(d.sheet.Rules) == len(c.Rules) { // healthy: no copies
		i := 0
		for i < len(c.Rules) && d.sheet.Rules[i] == expect.Read(&c.Rules[i]) {
			i++
		}
		if i == len(c.Rules) {
			d.countWanted(c)
			d.add(Difference{kind: d.kindOf(c)})
			return
		}
	}
	have := make([]*ruleset.Rule, 0, len(c.Rules))
	for i := range c.Rules {
		if r := &c.Rules[i]; r.Target != "" {
			have = append(have, r)
		}
	}
	u := Difference{Chain: c, Empty: len(c.Rules) == 0}
	if at := &d.m.Chains[c.Index]; at.Port != nil {
		u.Own, u.Service = true, at.Port.Name
		if at.Kind == "SEP" && at.Port.SVC != nil && len(at.Port.Endpoints) > 0 {
			u.Share = 1 / float64(len(at.Port.Endpoints))
		}
	}
	d.compare(u, have, ordered)
}

// compare compares the sheet with rules, as multisets, and if ordered also their order. Without a chain, each rule names its own.
func (d *saveDiffer) compare(u Difference, rules []*ruleset.Rule, ordered bool) {
	want, have := d.sheet.Rules, make([]expect.Rule, len(rules))
	if u.Chain != nil {
		u.Name, u.Line, u.kind = u.Chain.Name, int(u.Chain.Line), d.kindOf(u.Chain)
	}
	for i, r := range rules {
		if have[i] = expect.Read(r); u.Chain == nil {
			have[i].Chain = r.Chain
		}
	}
	chainOf := func(w *expect.Rule) *ruleset.Chain {
		if u.Chain != nil {
			return u.Chain
		}
		return d.m.Chains[w.Chain].Chain
	}
	missing, extra := subtract(want, have)
	for _, i := range missing {
		u.missing = append(u.missing, d.newRule(chainOf(&want[i]), &want[i]))
	}
	for _, i := range extra {
		r := d.newRule(chainOf(&have[i]), &have[i])
		r.have, r.line, r.takes = rules[i], int(rules[i].Line), takes(rules[i])
		if have[i].Flags&(ruleset.ByOther|ruleset.BySet) != 0 {
			r.text = rules[i].Text
		}
		u.extra = append(u.extra, r)
	}
	for i := 0; ordered && i < len(want) && len(missing)+len(extra) == 0 && !u.Order; i++ {
		if want[i] != have[i] && want[i].Flags&ruleset.ByRecent == 0 {
			u.Missing, u.Order = want[i].Text(u.Name), true
		}
	}
	d.countWanted(u.Chain)
	d.add(u)
}

func (d *saveDiffer) countWanted(c *ruleset.Chain) {
	for i := range d.sheet.Rules {
		if w := &d.sheet.Rules[i]; d.counts != nil && c != nil {
			d.count(0, d.shape(c, w))
		} else if d.counts != nil {
			d.count(0, d.shape(d.m.Chains[w.Chain].Chain, w))
		}
	}
}

func (d *saveDiffer) newRule(c *ruleset.Chain, w *expect.Rule) rule {
	return rule{text: w.Text(c.Name), shape: d.shape(c, w), chain: c}
}

// shape returns a rule without its values.
func (d *saveDiffer) shape(c *ruleset.Chain, w *expect.Rule) string {
	target, _ := model.ServiceChain(w.Target)
	if target == "" {
		target = w.Target
	}
	return fmt.Sprint(d.kindOf(c), " ", target, " ", w.Flags)
}

func (d *saveDiffer) kindOf(c *ruleset.Chain) string {
	if kind := d.m.Chains[c.Index].Kind; kind != "" {
		return kind
	}
	if d.m.NAT.Chain(c.Name) == c {
		return "nat " + c.Name
	}
	return c.Name
}

// takes reports whether a rule takes some first packets from the rules behind it.
func takes(r *ruleset.Rule) bool {
	const clear = ruleset.BySource | ruleset.ByDestination | ruleset.ByProtocol | ruleset.ByPort | ruleset.ByInterface | ruleset.ByState |
		ruleset.FromLocal | ruleset.ToLocal
	switch r.Target {
	case "DROP", "REJECT", "ACCEPT", "RETURN", "DNAT", "SNAT", "MASQUERADE":
		return r.Conditions()&^clear == 0 && (!r.Has(ruleset.ByState) || strings.Contains(r.Extra().States, "NEW"))
	}
	return false
}
