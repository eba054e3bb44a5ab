package fleet

import (
	"cmp"
	"strings"

	"nodegate/internal/verdict"
)

// byInterest orders checks by the worst verdict, then by the number of nodes, the most
// first. What follows from another check, and what needs no person, comes after.
func byInterest(a, b Check) int {
	return cmp.Or(cmp.Compare(a.later(), b.later()), cmp.Compare(a.worst(), b.worst()), cmp.Compare(b.concerned(), a.concerned()))
}

// later returns 0 for a check that a person looks at.
func (c Check) later() Kind {
	if c.Kind < Caused {
		return 0
	}
	return c.Kind
}

// concerned returns on how many nodes the check does not pass; where all pass, how many
// are not as most.
func (c Check) concerned() int {
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

// natural compares names with numbers as numbers: node-2 comes before node-10.
func natural(a, b string) int {
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
