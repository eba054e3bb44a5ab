// Package compare compares the rules of a node with those that kube-proxy writes.
package compare

import (
	"slices"
	"strings"

	"nodegate/internal/ruleset"
)

// Difference is a place where the rules differ from kube-proxy's. Without Missing and Extra, the place is missing.
type Difference struct {
	Own            bool           // it is a Service's, whose name may be unknown
	Service        string         // as the rules name it
	Name           string         // of the chain, the set or the map
	Chain          *ruleset.Chain // of iptables mode
	Rule           *ruleset.Rule  // the extra rule of iptables mode
	Missing, Extra string         // the first rule or element that is missing, or that kube-proxy does not write here
	Line, Handle   int            // of the extra rule, or of the place
	Empty, Order   bool           // the place is empty; Missing comes too late
	Share          float64        // of the Service's connections; 0 if not known

	kind           string // of the place; "" for chains that Services share
	missing, extra []rule
}

// rule is a rule that is missing, or that kube-proxy does not write.
type rule struct {
	text, shape  string // the shape is the text without names, addresses and numbers; it is known in the second pass only
	line, handle int
	takes        bool           // it takes packets from the rules behind it
	chain        *ruleset.Chain // of iptables mode
	have         *ruleset.Rule
}

// differ collects differences. If there are any, it passes over all places once more to count shapes, which decide whether a difference is
// a fault or the form of a release that is not known.
type differ struct {
	list   []Difference
	counts map[string]*[3]int // of the second pass, by shape: wanted, missing, extra
	kinds  map[string]int     // places of each kind
	unsure int                // places with a rule whose shape is not known
	other  int                // base chains of another form
}

func (d *differ) countAgain() {
	d.list, d.counts, d.kinds = nil, map[string]*[3]int{}, map[string]int{}
}

// count counts a shape, and the shape for any number of endpoints.
func (d *differ) count(list int, shape string) {
	for _, key := range slices.Compact([]string{shape, anyNumber(shape)}) {
		if d.counts[key] == nil {
			d.counts[key] = &[3]int{}
		}
		d.counts[key][list]++
	}
}

// add adds a place if it differs.
func (d *differ) add(u Difference) {
	if d.counts != nil {
		d.kinds[u.kind]++
		for n, list := range [][]rule{1: u.missing, 2: u.extra} {
			for _, r := range list {
				d.count(n, r.shape)
			}
		}
	}
	if len(u.missing)+len(u.extra) > 0 || u.Order {
		d.list = append(d.list, u)
	}
}

// subtract returns the indexes of the rules that only one of two multisets has.
func subtract[K comparable](want, have []K) (missing, extra []int) {
	count := make(map[K]int, len(want))
	for _, k := range want {
		count[k]++
	}
	for i, k := range have {
		if count[k]--; count[k] < 0 {
			extra = append(extra, i)
		}
	}
	for i, k := range want {
		if count[k]--; count[k] >= 0 {
			missing = append(missing, i)
		}
	}
	return missing, extra
}

// anyNumber returns a shape for any number of endpoints. Some forms differ only for one.
func anyNumber(shape string) string {
	return strings.Replace(shape, "{ one endpoint }", "{ # endpoints }", 1)
}

// isKnown reports whether kube-proxy writes rules of this shape.
func (d *differ) isKnown(r *rule, key func(string) string) bool {
	n := d.counts[key(r.shape)]
	return n != nil && n[0] > 0 || strings.HasPrefix(r.text, "hook ") || strings.HasPrefix(r.text, "timeout ")
}

// judge separates faults from forms that are not known. A rule that is missing is a fault if most of its shape are there, or if nothing
// has an unknown shape. A rule that kube-proxy does not write is a fault if it has a shape that kube-proxy writes there, if it takes
// packets from the rules behind it, if it is an altered missing rule, or if most other Services lack it.
func (d *differ) judge() (list []Difference, unknown []string) {
	for _, u := range d.list {
		if slices.ContainsFunc(u.extra, func(r rule) bool { return !d.isKnown(&r, strings.Clone) }) {
			d.unsure++
		}
	}
	for i := range d.list {
		u := &d.list[i]
		for k := range u.extra {
			r := &u.extra[k]
			if !d.isFault(u, r) {
				unknown = append(unknown, r.text)
			} else if u.Extra == "" {
				u.Extra, u.Rule, u.Line, u.Handle = r.text, r.have, r.line, r.handle
				if u.Chain == nil && r.chain != nil {
					u.setChain(r.chain)
				}
			}
		}
	}
	if d.other > 1 {
		unknown = append(unknown, "the base chains")
	}
	for _, u := range d.list {
		base := strings.HasPrefix(u.Name, "filter-") || strings.HasPrefix(u.Name, "nat-")
		for k := range u.missing {
			r := &u.missing[k]
			if u.Missing != "" || len(unknown) > 0 && !d.stands(r) {
				continue
			}
			if u.Missing = r.text; r.chain != nil && u.Chain != r.chain { // of the rules of a Service in shared chains
				u.setChain(r.chain)
				u.Extra, u.Rule, u.Line = "", nil, int(r.chain.Line)
			}
		}
		gone := u.missing == nil && u.extra == nil && !u.Order && (len(unknown) == 0 || u.Own)
		if (gone || u.Missing != "" || u.Extra != "") && (!base || d.other < 2) {
			list = append(list, u)
		}
	}
	return list, unknown
}

func (u *Difference) setChain(c *ruleset.Chain) {
	u.Chain, u.Name, u.Empty = c, c.Name, len(c.Rules) == 0
}

func (d *differ) isFault(u *Difference, r *rule) bool {
	words := strings.Fields(r.text)
	n := d.counts[anyNumber(r.shape)]
	// A form that is not known changes more than one place.
	few := n == nil || 2*n[2] <= d.kinds[u.kind] || d.unsure == 1
	gone := func(missing rule) bool { // no chain has a rule of its shape, which is another
		n := d.counts[missing.shape]
		return n != nil && n[0] == n[1] && anyNumber(missing.shape) != anyNumber(r.shape)
	}
	altered := func(missing rule) bool {
		m := strings.Fields(missing.text)
		return (!u.Own || few) && 2*len(words) >= len(m) && within(words, m) ||
			few && len(words) == len(m)+1 && within(m, words) ||
			r.text == strings.TrimSuffix(missing.text, " fully-random")+" random" ||
			u.Own && d.stands(&missing)
	}
	return d.unsure == 0 || r.takes || d.isKnown(r, anyNumber) && !slices.ContainsFunc(u.missing, gone) ||
		slices.ContainsFunc(u.missing, altered) || u.missing == nil && u.Own && few
}

// within reports whether b has the words of a in their order.
func within(a, b []string) bool {
	i := 0
	for _, w := range b {
		if i < len(a) && a[i] == w {
			i++
		}
	}
	return i == len(a)
}

// stands reports whether most rules of a shape are there.
func (d *differ) stands(r *rule) bool {
	n := d.counts[r.shape]
	return n != nil && 2*n[1] < n[0]
}
