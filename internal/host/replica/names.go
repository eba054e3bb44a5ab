package replica

import (
	"slices"
	"strings"
)

const kubeProxy = "kube-proxy" // its table in nftables mode

// ServicePort returns the key of the Service port to which a chain or a set belongs, or "".
func ServicePort(table, name string) string {
	if table == kubeProxy {
		for _, prefix := range []string{"service-", "external-", "firewall-", "local-", "affinity-", "endpoint-"} {
			if rest, ok := strings.CutPrefix(name, prefix); ok && len(rest) > 8 && rest[8] == '-' && isKey(rest[:8]) {
				return rest[:8]
			}
		}
		return ""
	}
	rest, ok := strings.CutPrefix(name, "KUBE-")
	kind, key, _ := strings.Cut(rest, "-")
	if ok && len(key) == 16 && isKey(key) && slices.Contains([]string{"SVC", "SVL", "EXT", "FW", "XLB", "SEP"}, kind) {
		return key
	}
	return ""
}

func isKey(s string) bool {
	return strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
}

func ofEndpoint(chain string) bool {
	return strings.HasPrefix(chain, "KUBE-SEP-") || strings.HasPrefix(chain, "endpoint-")
}

// dispatches reports whether a chain is one of kube-proxy's that leads to the chains of all Services.
func dispatches(chain string) bool {
	return slices.Contains([]string{"KUBE-SERVICES", "KUBE-NODEPORTS", "KUBE-EXTERNAL-SERVICES", "KUBE-PROXY-FIREWALL"}, chain)
}

// isOwn reports whether kube-proxy or kubelet wrote the rules of a chain. kube-router's chains begin with KUBE- too.
func isOwn(table, chain string) bool {
	if table == kubeProxy || ServicePort(table, chain) != "" || dispatches(chain) {
		return true
	}
	return slices.Contains([]string{"KUBE-POSTROUTING", "KUBE-MARK-MASQ", "KUBE-MARK-DROP", "KUBE-FORWARD", "KUBE-FIREWALL",
		"KUBE-PROXY-CANARY", "KUBE-KUBELET-CANARY"}, chain)
}
