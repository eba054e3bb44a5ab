package proxy

import (
	"slices"
	"strconv"
	"strings"

	"nodegate/internal/audit/model"
)

// serviceChain splits "KUBE-SVC-XXXXXXXXXXXXXXXX" into "SVC" and the hash.
func serviceChain(name string) (kind, hash string) { return model.ServiceChain(name) }

// markMask splits "0x4000/0x4000".
func markMask(s string) (mark, mask uint64, ok bool) { return model.MarkMask(s) }

// podRange returns the range or interface by which kube-proxy identifies Pods, or "" if it does
// not: for "not from interface cni0" it is cni0.
func podRange(detector string) string {
	rest, ok := strings.CutPrefix(detector, "not from ")
	if !ok {
		return ""
	}
	return strings.TrimPrefix(rest, "interface ")
}

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
