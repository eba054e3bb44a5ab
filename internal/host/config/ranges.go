package config

import (
	"strconv"
	"strings"
)

// FirstUnlisted returns the first number, starting at first, that is not in a list as the kernel
// prints it (sorted, "1,5-7"), or last+1 if all are listed.
func FirstUnlisted(list string, first, last int) (int, error) {
	for part := range strings.SplitSeq(list, ",") {
		if part == "" {
			continue
		}
		a, b, isRange := strings.Cut(part, "-")
		if !isRange {
			b = a
		}
		low, err := strconv.Atoi(a)
		if err != nil {
			return 0, err
		}
		high, err := strconv.Atoi(b)
		if err != nil {
			return 0, err
		}
		if low <= first && first <= high {
			first = min(high, last) + 1
		}
	}
	return first, nil
}
