package ruleset

import (
	"slices"
	"strings"
)

// SaveTables returns the tables of iptables in the order of iptables-nft-save.
func SaveTables() []string { return []string{"mangle", "security", "raw", "filter", "nat"} }

// IsTableOfIPTables reports whether a table of nftables has a family and name of iptables-nft.
func IsTableOfIPTables(family, name string) bool {
	return (family == IPv4 || family == IPv6) && slices.Contains(SaveTables(), name)
}

// IsChainOfIPTables reports whether a chain of such a table is one that iptables reads itself: a base chain by its name,
// or a Service's.
func IsChainOfIPTables(name string) bool {
	return strings.HasPrefix(name, "KUBE-S") || slices.Contains([]string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}, name)
}

// Reached returns the base chains and the chains to which their rules lead, as far as the rules are read. An element of any
// map counts.
func (t *NFTTable) Reached() map[string]bool {
	reached := map[string]bool{}
	var next []*NFTChain
	add := func(name string) {
		if c := t.byName[name]; c != nil && !reached[name] {
			reached[name] = true
			next = append(next, c)
		}
	}
	for _, c := range t.Chains {
		if c.Hook != "" {
			add(c.Name)
		}
	}
	if len(next) == 0 {
		return reached
	}
	for _, s := range t.Sets {
		for i := range s.Elements {
			add(s.Elements[i].Target)
		}
	}
	for len(next) > 0 {
		c := next[0]
		next = next[1:]
		for _, r := range c.Rules {
			add(r.Target)
			for word := range strings.FieldsFuncSeq(r.Text, func(r rune) bool { return strings.ContainsRune(" ,{}", r) }) {
				add(word)
			}
		}
	}
	return reached
}

// keepNative removes from the tables of iptables-nft all chains to which no base chain of another program leads, and then
// the tables without chains.
func (s *Set) keepNative() {
	s.Foreign = slices.DeleteFunc(s.Foreign, func(t *NFTTable) bool {
		if !IsTableOfIPTables(t.Family, t.Name) {
			return false
		}
		reached := t.Reached()
		t.Chains = slices.DeleteFunc(t.Chains, func(c *NFTChain) bool {
			if !reached[c.Name] {
				delete(t.byName, c.Name)
			}
			return !reached[c.Name]
		})
		return len(t.Chains) == 0
	})
}
