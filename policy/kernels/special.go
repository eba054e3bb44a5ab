package kernels

import (
	"math/big"
	"strconv"
	"strings"
)

// notRecorded returns the answer to a value that the record cannot describe, because it depends on the length or the order of the value, or
// because the recorder leaves the parameter out. Sources: fs/coredump.c (CORENAME_MAX_SIZE), kernel/utsname_sysctl.c and __NEW_UTS_LEN,
// KMOD_PATH_LEN, net/ipv4/sysctl_net_ipv4.c (ipv4_ping_group_range), proc_do_large_bitmap, net/core/sysctl_net_core.c
// (rps_sock_flow_sysctl).
func notRecorded(key, value string) (answer Answer, stored string, known bool) {
	if most := longest(key); most > 0 && len(value) > most {
		return Rounded, value[:most], true
	}
	switch key {
	case "net/ipv4/ping_group_range":
		if fields := strings.Fields(value); len(fields) == 2 && value != "1 0" && falls(fields[0], fields[1]) {
			return Rounded, "1 0", true
		}
	case "net/ipv4/ip_local_reserved_ports":
		for item := range strings.SplitSeq(value, ",") {
			if first, last, isRange := strings.Cut(item, "-"); isRange && falls(first, last) {
				return Refused, "", true
			}
		}
	case "net/core/rps_sock_flow_entries":
		n, is := parseNumber(value)
		switch {
		case !is || !n.IsInt64() || n.Sign() < 0:
		case n.Int64() > 1<<29:
			return Refused, "", true
		default:
			kept := parseRounding("p")(n)
			if kept.Cmp(n) != 0 {
				return Rounded, kept.String(), true
			}
			return Stored, kept.String(), true
		}
	}
	return Unknown, "", false
}

// longest returns how many bytes of a string the kernel keeps, or 0 if that is not known.
func longest(key string) int {
	return map[string]int{"kernel/core_pattern": 127, "kernel/hostname": 64, "kernel/domainname": 64, "kernel/modprobe": 255}[key]
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
