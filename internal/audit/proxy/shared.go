package proxy

import (
	"slices"
	"strconv"
)

// maxAddresses limits the addresses that are stored for one Service.
const maxAddresses = 256

func appendNew(list []string, s string) []string {
	if len(list) >= maxAddresses || slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

func atoi(s string) int {
	n, _ := strconv.Atoi(s) // 0 means unknown
	return n
}
