package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// canonical returns a value as the kernel prints it, where what may be written reads as another text: ranges are sorted and joined
// (proc_do_large_bitmap). What is no list of ranges stays as it is.
func canonical(key Key, value string) string {
	if key != "net/ipv4/ip_local_reserved_ports" && key != "kernel/watchdog_cpumask" {
		return value
	}
	type numbers struct{ first, last uint64 }
	var all []numbers
	for item := range strings.SplitSeq(value, ",") {
		first, last, isRange := strings.Cut(item, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.ParseUint(first, 10, 32)
		to, err2 := strconv.ParseUint(last, 10, 32)
		if err != nil || err2 != nil || from > to {
			return value
		}
		all = append(all, numbers{from, to})
	}
	slices.SortFunc(all, func(a, b numbers) int { return cmp.Compare(a.first, b.first) })
	var words []string
	for i := 0; i < len(all); {
		n := all[i]
		for i++; i < len(all) && all[i].first <= n.last+1; i++ {
			n.last = max(n.last, all[i].last)
		}
		word := strconv.FormatUint(n.first, 10)
		if n.last > n.first {
			word = fmt.Sprintf("%d-%d", n.first, n.last)
		}
		words = append(words, word)
	}
	return strings.Join(words, ",")
}
