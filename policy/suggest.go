package policy

import (
	"fmt"

	"github.com/agext/levenshtein"
)

// didYouMean returns " Did you mean ...?" for the known word nearest to s, or ""
// where none is near. hcl uses the same library for the same sentence.
func didYouMean(s string, known []string) string {
	best, distance := "", 4
	for _, k := range known {
		if d := levenshtein.Distance(s, k, nil); d < distance && d < len(k)/2+1 {
			best, distance = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" Did you mean %q?", best)
}
