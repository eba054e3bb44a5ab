package lint

import (
	"strconv"
	"strings"

	"nodegate/policy"
	"nodegate/policy/kernels"
)

// usualNodes returns the facts of nodes that exist. A new node does not know its CNI, kube-proxy and kubelet yet.
func usualNodes() (all []map[string]any) {
	for _, rule := range kernels.Rules("node") {
		words := make([]string, len(rule.Words))
		numbers := make([]int64, len(rule.Words))
		for i, w := range rule.Words {
			words[i] = strings.TrimPrefix(w, "-")
			numbers[i], _ = strconv.ParseInt(w, 10, 64)
		}
		facts := map[string]any{"node.cpus": numbers[0], "node.memory": (numbers[1]*1016332 + 1) << 10, // firmware and the kernel take 3 %
			"kernel.release": words[2], "kernel.version": words[2][:len(words[2])-len(strings.TrimLeft(words[2], "0123456789."))],
			"os.id": words[3], "os.version": words[4], "systemd.version": numbers[5], "cloud.provider": words[6]}
		for i, name := range []string{"cni.name", "kube_proxy.mode", "kubelet.version"} {
			if words[7+i] != "" {
				facts[name] = words[7+i]
			}
		}
		all = append(all, facts)
	}
	return all
}

// withoutOneFact returns nodes that lack one fact each.
func withoutOneFact() []map[string]any {
	var all []map[string]any
	for _, name := range policy.FactNames() {
		all = append(all, usualNodes()[6])
		delete(all[len(all)-1], name)
	}
	return all
}

// exampleOf returns a fact of a usual node, for a message.
func exampleOf(fact string) any { return usualNodes()[7][fact] }

// closedWords returns all values of a fact, or nil if it can have others.
func closedWords(fact string) []string {
	switch fact {
	case "cloud.provider":
		return []string{"aws", "gcp", "azure", "openstack", "hetzner", "digitalocean", "alibaba", ""}
	case "kube_proxy.mode":
		return []string{"iptables", "nftables", "ipvs", "userspace", "kernelspace", ""}
	}
	return nil
}
