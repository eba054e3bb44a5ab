package packetfilter

import (
	"context"
	"slices"

	"nodegate/checks"
	"nodegate/checks/noderules"
	"nodegate/internal/audit"
	"nodegate/internal/host"
	"nodegate/internal/ruleset"
	"nodegate/policy"
)

// forwardDrop detects a firewall on the node that drops the traffic of Pods before a rule accepts it.
func forwardDrop() checks.Problem {
	return checks.Problem{
		Name: "packetfilter.forward-drop", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn, Moves: true,
		Detects: "A DROP or REJECT for all packets comes before the rule that accepts the traffic of Pods.",
		Symptom: "Pods cannot reach anything outside their node, for example with ufw, with the REJECT that Enterprise Linux has at the end of " +
			"FORWARD, with an /etc/nftables.conf whose chain forward has policy drop, or after Docker enabled forwarding itself.",
		How: "The check sends packets of Pods to other machines through a copy of the node's network, as kubeproxy.way does. It fails if a " +
			"rule, or a policy such as Docker's, loses them.",
		Remedy: "put the CNI's ACCEPT first: restart its agent, which inserts it; with ufw, run `ufw default " +
			"allow routed`; in a table of nft, let the Pods' links pass or give the chain policy accept",
		TradeOff: "The node also forwards for its neighbours, as any Kubernetes node does.",
		Ref:      "https://github.com/moby/moby/issues/49536",
		Inspect:  inspectForwardDrop,
	}
}

func inspectForwardDrop(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("Pod traffic passes")
	sets, err := h.Rulesets(ctx)
	if err != nil {
		return s, err
	}
	if !isKubernetes(sets) {
		s.Skip = noderules.None
		return s, nil
	}
	losses, err := lossesTo(ctx, h, &s, sets, audit.ToOutside)
	losses = slices.DeleteFunc(losses, func(l audit.Loss) bool { return l.Flows[0].Node })
	fail(&s, losses, map[string]string{audit.ToOutside: "packets of Pods are lost"})
	return s, err
}

// isKubernetes reports whether the rules have chains of kube-proxy or kubelet.
func isKubernetes(sets []*ruleset.Set) bool {
	return slices.ContainsFunc(sets, func(set *ruleset.Set) bool { return set.NFT != nil }) ||
		slices.ContainsFunc(ruleset.Tables(sets, "filter"), func(t *ruleset.Table) bool {
			return t.Declares("KUBE-FORWARD") || t.Declares("KUBE-FIREWALL")
		})
}
