package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/agext/levenshtein"

	"nodegate/internal/sorted"
	"nodegate/policy/kernels"
)

func NotNumber(s string) bool {
	_, err := strconv.ParseInt(s, 0, 64)
	_, unsigned := strconv.ParseUint(s, 0, 64)
	return err != nil && unsigned != nil || !kernels.IsNumber(s)
}

// Nearest returns " Did you mean ...?" with up to three known names: the nearest ones, and names
// with the same last component, usually in another directory. It returns "" if no name is near.
func Nearest(s string, known []string) string {
	last := func(s string) string { return s[strings.LastIndexByte(s, '.')+1:] }
	type candidate struct {
		name     string
		distance int
	}
	var near []candidate
	s = strings.ToLower(s)
	const far = 4
	// Words whose lengths differ by more than far need no comparison; most do.
	distance := func(a, b string) int {
		if len(a) > len(b)+far || len(b) > len(a)+far {
			return far
		}
		return levenshtein.Distance(a, b, nil)
	}
	for _, k := range known {
		switch d := distance(s, k); {
		case d < far && d < len(last(k))/2+1:
			near = append(near, candidate{k, d})
		case last(s) != s && len(last(s)) > 3 && distance(last(s), last(k)) < 2:
			near = append(near, candidate{k, 10 + levenshtein.Distance(s, k, nil)})
		}
	}
	sorted.By(near, func(a, b candidate) int { return a.distance - b.distance })
	var names []string
	for _, c := range near {
		if quoted := fmt.Sprintf("%q", c.name); len(names) < 3 && !slices.Contains(names, quoted) {
			names = append(names, quoted)
		}
	}
	if names == nil {
		return ""
	}
	return " Did you mean " + strings.Join(names, " or ") + "?"
}

// DidYouMean returns " Did you mean ...?" with the known word nearest to s, or "" if no word is
// near. hcl uses the same library for the same sentence.
func DidYouMean(s string, known []string) string {
	best, distance := "", 4
	for _, k := range known {
		d := levenshtein.Distance(s, k, nil)
		if len(s) > 3 && len(k) > len(s) { // or the word that begins like s
			d = min(d, 2+levenshtein.Distance(s, k[:len(s)+1], nil))
		}
		if d < distance && d < len(k)/2+1 {
			best, distance = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" Did you mean %q?", best)
}

// Means reports whether two names are of one parameter.
func (k Key) Means(o Key) bool {
	return k == o || slices.ContainsFunc(kernels.Rules("alias"), func(r kernels.Rule) bool {
		return string(k) == r.Words[0] && string(o) == r.Words[1]
	})
}
