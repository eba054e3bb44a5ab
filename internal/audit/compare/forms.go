package compare

import (
	"net/netip"
	"strings"

	"nodegate/internal/audit/expect"
	"nodegate/internal/audit/model"
	"nodegate/internal/ruleset"
)

// shape is a rule without its values.
type shape struct {
	kind, target string
	flags        ruleset.Flags
}

// counts counts shapes in all chains.
type counts struct {
	wanted, present map[shape]int // rules that kube-proxy writes, and those of them that are there
	extra           map[shape]int // rules that it does not write
	kinds           map[string]int
}

func (d *differ) kindOf(c *ruleset.Chain) string {
	if kind := d.m.Chains[c.Index].Kind; kind != "" {
		return kind
	}
	if d.m.NAT.Chain(c.Name) == c {
		return "nat " + c.Name
	}
	return c.Name
}

func targetKind(name string) string {
	if kind, _ := model.ServiceChain(name); kind != "" {
		return kind
	}
	if strings.HasPrefix(name, "KUBE-SEP-") {
		return "SEP"
	}
	return name
}

func (d *differ) wantShape(c *ruleset.Chain, w *expect.Rule) shape {
	if w.Chain != 0 {
		c = d.m.Chains[w.Chain].Chain
	}
	return shape{d.kindOf(c), targetKind(w.Target), w.Flags}
}

func (d *differ) shapeOf(r *ruleset.Rule) shape {
	return shape{d.kindOf(d.m.Chains[r.Chain].Chain), targetKind(r.Target), r.Flags & expect.Known}
}

func (c *counts) add(d *differ, u unit, want []expect.Rule, found []int) {
	if u.chain != nil {
		c.kinds[d.kindOf(u.chain)]++
	}
	for i := range want {
		s := d.wantShape(u.chain, &want[i])
		if c.wanted[s]++; found[i] >= 0 {
			c.present[s]++
		}
	}
	for _, r := range u.extra {
		c.extra[d.shapeOf(r)]++
	}
}

// judge separates faults from forms that are not known. A rule that is missing is a fault if most of its shape are there, or if nothing
// has an unknown shape. A rule that kube-proxy does not write is a fault if it has a shape that kube-proxy writes there, or if it takes
// the packets of Services.
func (d *differ) judge() (list []Difference, unknown []*ruleset.Rule) {
	faults := make([]Difference, len(d.list))
	for i := range d.list {
		u := &d.list[i]
		f := &faults[i]
		f.Port, f.Chain = u.port, u.chain
		for _, r := range u.extra {
			switch {
			case !d.isFault(u, r):
				unknown = append(unknown, r)
			case f.Extra == nil:
				f.Extra = r
			}
		}
	}
	for i := range d.list {
		u, f := &d.list[i], &faults[i]
		for k := range u.missing {
			s := d.wantShape(u.chain, &u.missing[k])
			if f.Missing == nil && (len(unknown) == 0 || 2*d.count.present[s] > d.count.wanted[s]) {
				f.Missing = &u.missing[k]
			}
		}
		if f.Missing == nil && f.Extra == nil && u.late != nil {
			f.Missing, f.Order = u.late, true
		}
		if f.Missing == nil && f.Extra == nil {
			continue
		}
		if f.Chain == nil && f.Missing != nil {
			f.Chain = d.m.Chains[f.Missing.Chain].Chain
		} else if f.Chain == nil {
			f.Chain = d.m.Chains[f.Extra.Chain].Chain
		}
		if f.Missing != nil && f.Extra != nil && f.Extra.Chain != f.Chain.Index {
			f.Extra = nil
		}
		list = append(list, *f)
	}
	return list, unknown
}

func (d *differ) isFault(u *unit, r *ruleset.Rule) bool {
	s := d.shapeOf(r)
	if d.count.wanted[s] > 0 || d.takes(u, r) {
		return true
	}
	const unclear = ruleset.ByOther | ruleset.BySet
	target := targetKind(r.Target)
	known := strings.HasPrefix(r.Target, "KUBE-") || target == "ACCEPT" || target == "DROP" || target == "REJECT" || target == "RETURN" ||
		target == "DNAT"
	return u.port != nil && known && r.Flags&unclear == 0 && 2*d.count.extra[s] <= max(d.count.kinds[s.kind], 2)
}

// takes reports whether a rule certainly takes some first packet to a Service from the rules behind it.
func (d *differ) takes(u *unit, r *ruleset.Rule) bool {
	const clear = ruleset.BySource | ruleset.ByDestination | ruleset.ByProtocol | ruleset.ByPort | ruleset.ByInterface | ruleset.ByState |
		ruleset.FromLocal | ruleset.ToLocal
	lost := r.Target == "DROP" || r.Target == "REJECT"
	if r.Conditions()&^clear != 0 || r.Has(ruleset.ByState) && !strings.Contains(r.Extra().States, "NEW") ||
		!lost && r.Target != "ACCEPT" && r.Target != "RETURN" && r.Target != "DNAT" && r.Target != "MASQUERADE" && r.Target != "SNAT" {
		return false
	}
	c := d.m.Chains[r.Chain].Chain
	if d.m.Filter.Chain(c.Name) == c && lost && (u.port != nil || r.Destination == "") {
		return true
	}
	behind := false
	for i := range c.Rules {
		if o := &c.Rules[i]; o == r {
			behind = true
		} else if behind && d.shapeWritten(o) && overlap(r, o) {
			return true
		}
	}
	return false
}

func (d *differ) shapeWritten(r *ruleset.Rule) bool { return d.count.wanted[d.shapeOf(r)] > 0 }

// overlap reports whether some packet may match both rules.
func overlap(a, b *ruleset.Rule) bool {
	if a.Port != "" && b.Port != "" && a.Port != b.Port || a.Protocol != "" && b.Protocol != "" && a.Protocol != b.Protocol {
		return false
	}
	if a.Destination == "" || b.Destination == "" || a.Has(ruleset.NotDestination) || b.Has(ruleset.NotDestination) {
		return true
	}
	x, err := netip.ParsePrefix(a.Destination)
	y, also := netip.ParsePrefix(b.Destination)
	return err == nil && also == nil && x.Overlaps(y)
}
