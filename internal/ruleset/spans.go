package ruleset

import (
	"net/netip"
	"strings"

	"nodegate/internal/sorted"
)

// Span is a range of consecutive addresses.
type Span struct{ First, Last netip.Addr }

// Spans parses a list of addresses and returns them sorted and merged. It accepts 10.0.0.0/8,
// 10.0.0.1 and, as nft prints ranges, "range 10.0.0.1, 10.0.0.5". It returns false if the list
// contains anything else.
func Spans(list []string) ([]Span, bool) {
	var all []Span
	for _, text := range list {
		one := Span{}
		p, err := netip.ParsePrefix(text)
		if from, to, isRange := strings.Cut(strings.TrimPrefix(text, "range "), ", "); isRange {
			one.First, err = netip.ParseAddr(from)
			one.Last, _ = netip.ParseAddr(to)
		} else if err == nil {
			one = Span{p.Masked().Addr(), Last(p)}
		} else {
			one.First, err = netip.ParseAddr(text)
			one.Last = one.First
		}
		if err != nil || !one.Last.IsValid() {
			return nil, false
		}
		all = append(all, one)
	}
	sorted.By(all, func(a, b Span) int { return a.First.Compare(b.First) })
	var merged []Span
	for _, s := range all {
		if n := len(merged) - 1; n >= 0 && (s.First.Compare(merged[n].Last) <= 0 || s.First == merged[n].Last.Next()) {
			if merged[n].Last.Less(s.Last) {
				merged[n].Last = s.Last
			}
			continue
		}
		merged = append(merged, s)
	}
	return merged, true
}

// IPSet is a set of ipset: addresses, addresses with a port, or a list of other sets.
type IPSet struct {
	Spans   []Span
	Ports   []IPSetPort // of each span; nil in a set of addresses
	Members []string    // nil unless it is a list of sets
	Partial bool        // an address in Spans may not be in the set
}

// IPSetPort is the port of an element.
type IPSetPort struct {
	Protocol string
	Port     uint16
}

// NamesIPSet reports whether a rule asks for a set of ipset.
func NamesIPSet(sets []*Set) bool {
	for _, set := range sets {
		for _, save := range set.Saves {
			for _, t := range save.Tables {
				for _, c := range t.Chains {
					if strings.HasPrefix(c.Name, "KUBE-S") { // a Service's
						continue
					}
					for i := range c.Rules {
						if strings.Contains(c.Rules[i].Text, "--match-set") {
							return true
						}
					}
				}
			}
		}
	}
	return false
}
