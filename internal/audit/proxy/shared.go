package proxy

import (
	"strconv"

	"nodegate/internal/audit/model"
)

// serviceChain splits "KUBE-SVC-XXXXXXXXXXXXXXXX" into "SVC" and the hash.
func serviceChain(name string) (kind, hash string) { return model.ServiceChain(name) }

// maxAddresses limits the addresses that are stored for one Service.
const maxAddresses = 256

func atoi(s string) int {
	n, _ := strconv.Atoi(s) // 0 means unknown
	return n
}
