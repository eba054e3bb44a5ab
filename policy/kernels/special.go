package kernels

import (
	"math/big"
	"strconv"
	"strings"
)

// isRefused reports whether the kernel refuses a value that the record cannot describe, because it depends on the order of the value, or
// because the recorder leaves the parameter out. Sources: proc_do_large_bitmap, net/core/sysctl_net_core.c (rps_sock_flow_sysctl).
func isRefused(key, value string) bool {
	switch key {
	case "net/ipv4/ip_local_reserved_ports":
		for item := range strings.SplitSeq(value, ",") {
			if first, last, isRange := strings.Cut(item, "-"); isRange && falls(first, last) {
				return true
			}
		}
	case "net/core/rps_sock_flow_entries":
		n, is := parseNumber(value)
		return is && n.IsInt64() && n.Int64() > 1<<29
	}
	return false
}

func falls(first, last string) bool {
	from, err := strconv.ParseInt(first, 10, 64)
	to, err2 := strconv.ParseInt(last, 10, 64)
	return err == nil && err2 == nil && from > to
}

// IsNumber reports whether the kernel reads a word as a number: unlike Go, it knows no plus sign, no underscores, no 0b and no 0o
// (kernel/sysctl.c, proc_get_long).
func IsNumber(word string) bool {
	_, is := parseNumber(word)
	return is
}

func parseNumber(word string) (*big.Int, bool) {
	digits := strings.ToLower(strings.TrimPrefix(word, "-"))
	if strings.HasPrefix(digits, "+") || strings.HasPrefix(digits, "0b") || strings.HasPrefix(digits, "0o") || strings.Contains(digits, "_") {
		return nil, false
	}
	return new(big.Int).SetString(word, 0)
}
