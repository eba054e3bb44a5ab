package config

import (
	"strconv"
	"strings"
)

// FirstUnlisted is the first number from first on that a list as the kernel
// prints it (sorted, "1,5-7") leaves out; last+1 where it leaves out none.
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
