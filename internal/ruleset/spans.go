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
