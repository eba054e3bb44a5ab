package fleet

import (
	"cmp"
	"encoding/binary"

	"nodegate/internal/sorted"
	"nodegate/internal/verdict"
)

// groupNodes groups identical nodes. Groups with the worst verdict come first, then those that
// differ in the most verdicts, then in the most values. Nodes without a difference come
// last.
func groupNodes(checks []Check, nodes int) []Group {
	var groups []Group
	byKey := map[string]int{}
	var key []byte
	for n := range nodes {
		key = key[:0]
		for i := range checks {
			key = binary.AppendVarint(key, int64(checks[i].likeness(n)))
		}
		g, is := byKey[string(key)]
		if !is {
			g = len(groups)
			byKey[string(key)] = g
			groups = append(groups, Group{})
			for i, c := range checks {
				if c.IsOdd(n) {
					groups[g].Differs = append(groups[g].Differs, i)
				}
			}
		}
		groups[g].Nodes = append(groups[g].Nodes, n)
	}
	sorted.By(groups, func(a, b Group) int {
		if d := cmp.Compare(a.worst(checks), b.worst(checks)); d != 0 {
			return d
		}
		verdictsA, valuesA := a.weight(checks)
		verdictsB, valuesB := b.weight(checks)
		return cmp.Or(cmp.Compare(verdictsB, verdictsA), cmp.Compare(valuesB, valuesA), cmp.Compare(len(a.Nodes), len(b.Nodes)))
	})
	return groups
}

// likeness returns the same number for nodes that count as identical in the check.
func (c Check) likeness(node int) int {
	s := c.of[node]
	if s < 0 || c.Kind != Varies && c.Kind != Wrong {
		return s
	}
	return c.States[s].rank()
}

// worst returns the index in verdict.All of the worst verdict in which the nodes
// differ.
func (g Group) worst(checks []Check) int {
	worst := len(verdict.All())
	for _, i := range g.Differs {
		s, _ := checks[i].Of(g.Nodes[0])
		if v := s.rank(); v >= 0 && !s.fine() {
			worst = min(worst, v)
		}
	}
	return worst
}

// weight returns the number of checks in which the nodes differ from the majority in
// the verdict, and in which they differ only in the value. Symptoms of another check
// do not count.
func (g Group) weight(checks []Check) (verdicts, values int) {
	for _, i := range g.Differs {
		c := checks[i]
		s, _ := c.Of(g.Nodes[0])
		switch {
		case c.Kind == Caused:
		case c.Kind == Verdicted && s.rank() != c.States[0].rank():
			verdicts++
		default:
			values++
		}
	}
	return verdicts, values
}
