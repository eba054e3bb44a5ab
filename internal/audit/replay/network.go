package replay

import (
	"slices"
	"strings"

	"nodegate/internal/host/replica"
)

// isOfNetwork reports whether a part is a CNI's, leads to a CNI's chain, or is a route. It is taken away only if nothing else helps.
func isOfNetwork(p *replica.Part) bool {
	cni := []string{"FLANNEL", "CNI-", "cali-", "AWS-", "CILIUM_", "ANTREA", "KUBE-ROUTER", "WEAVE", "IP-MASQ", "KIND-"}
	return p.Kind == replica.PartRoute || slices.ContainsFunc(cni, func(prefix string) bool {
		return strings.HasPrefix(p.Chain, prefix) || strings.HasPrefix(p.Target, prefix)
	})
}
