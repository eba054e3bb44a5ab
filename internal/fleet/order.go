package fleet

import (
	"cmp"
	"slices"
	"strings"

	"nodegate/internal/report"
)

// byInterest orders checks by kind; within one kind, those with fewer odd nodes
// first, then those with the worse verdict.
func byInterest(a, b Check) int {
	if d := cmp.Compare(a.Kind, b.Kind); d != 0 {
		return d
	}
	if a.Kind == Wrong || a.Kind == Varies || a.Kind == Alike {
		return cmp.Compare(a.worst(), b.worst())
	}
	if d := cmp.Compare(a.Odd(), b.Odd()); d != 0 {
		return d
	}
	return cmp.Compare(a.worst(), b.worst())
}

// worst returns the index of the worst verdict in report.Verdicts.
func (c Check) worst() int {
	worst := len(report.Verdicts())
	for _, s := range c.States {
		if i := slices.Index(report.Verdicts(), s.Verdict); i >= 0 {
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
