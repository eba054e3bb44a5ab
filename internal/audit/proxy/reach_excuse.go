package proxy

import (
	"slices"
	"strings"

	"nodegate/internal/audit/path"
	"nodegate/internal/ruleset"
)

// mayBypass reports whether packets of Pods may not meet the policy of FORWARD: because Cilium or Calico forward
// them by eBPF, or OVS does, or because the rules for each Pod accept them, and there may be no Pod now. kube-router
// (k3s has it), kindnet and kube-network-policies leave the forwarding to the kernel.
func mayBypass(sets []*ruleset.Set, owners []string) bool {
	if slices.ContainsFunc(owners, func(owner string) bool {
		return slices.Contains([]string{"Calico", "Cilium", "Weave Net", "Antrea", "OVN-Kubernetes"}, owner)
	}) {
		return true
	}
	for _, t := range ruleset.Tables(sets, "filter") {
		for r := range t.Rules("FORWARD") { // kube-router accepts what its chain for the Pod has marked
			if r.Target == "ACCEPT" && strings.Contains(r.Text, "--mark 0x20000/0x20000") {
				return true
			}
		}
	}
	return false
}

// isExplained reports whether a drop in a chain of kube-proxy or kubelet is not a finding of its own. Their own rules drop INVALID
// packets, marked ones, and those to 127.0.0.0/8: anything else is another program's rule. Chains of Services are judged elsewhere.
func (r *reach) isExplained(step *path.Step) bool {
	if !strings.HasPrefix(step.Chain, "KUBE-") {
		return false
	}
	if kind, _ := serviceChain(step.Chain); kind != "" || slices.Contains([]string{"KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-NODEPORTS",
		"KUBE-PROXY-FIREWALL", "KUBE-SOURCE-RANGES-FIREWALL", "KUBE-HOSTPORTS"}, step.Chain) {
		return true
	}
	return r.out != nil && slices.ContainsFunc(r.out.List, func(f Finding) bool {
		return f.Family == r.family && f.Table == step.Table && f.Chain == step.Chain && (f.Rule == "" || f.Rule == step.Rule)
	})
}

// owner returns the program that has added the rule, as far as its chain shows it. A rule that is not of kube-proxy or
// kubelet may be in one of their chains, or in one with a name like theirs.
func (t *taken) owner() string {
	if owner := t.step.Owner(); owner != "kube-proxy or kubelet" {
		return owner
	}
	return ""
}
