package fleet

import (
	"cmp"
	"strings"

	"nodegate/internal/verdict"
)

// byInterest orders checks by the worst verdict, then by the number of nodes, the most
// first. Symptoms of another check, and checks that need no attention, come last.
func byInterest(a, b Check) int {
	return cmp.Or(cmp.Compare(a.sortGroup(), b.sortGroup()), cmp.Compare(a.worst(), b.worst()),
		cmp.Compare(b.countConcerned(), a.countConcerned()))
}

// sortGroup returns 0 for a check that needs attention, and its kind for any other.
func (c Check) sortGroup() Kind {
	if c.Kind < Caused {
		return 0
	}
	return c.Kind
}

// countConcerned returns the number of nodes on which the check does not pass. If all nodes pass, it
// returns the number of nodes that differ from the majority.
func (c Check) countConcerned() int {
	n := 0
	for _, s := range c.States {
		if !s.fine() {
			n += len(s.Nodes)
		}
	}
	return cmp.Or(n, c.Odd())
}

// worst returns the index of the worst verdict in verdict.All.
func (c Check) worst() int {
	worst := len(verdict.All())
	for _, s := range c.States {
		if i := s.rank(); i >= 0 {
			worst = min(worst, i)
		}
	}
	return worst
}

// compareNatural compares names, with digits compared as numbers: node-2 comes before node-10.
func compareNatural(a, b string) int {
	for a != "" && b != "" {
		na, nb := digits(a), digits(b)
		if na > 0 && nb > 0 {
			x, y := strings.TrimLeft(a[:na], "0"), strings.TrimLeft(b[:nb], "0")
			if d := cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(x, y), cmp.Compare(na, nb)); d != 0 {
				return d
			}
			a, b = a[na:], b[nb:]
			continue
		}
		if a[0] != b[0] {
			return cmp.Compare(a[0], b[0])
		}
		a, b = a[1:], b[1:]
	}
	return cmp.Compare(len(a), len(b))
}

func digits(s string) int { return len(s) - len(strings.TrimLeft(s, "0123456789")) }
