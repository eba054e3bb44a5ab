package packetfilter

import (
	"context"
	"slices"

	"nodegate/checks"
	"nodegate/internal/audit"
	"nodegate/internal/host"
	"nodegate/internal/ruleset"
	"nodegate/policy"
)

// dockerForwardDrop detects a FORWARD policy that Docker set to DROP, as it does when it enables ip_forward itself.
func dockerForwardDrop() checks.Problem {
	return checks.Problem{
		Name: "docker.forward-drop", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn, Moves: true,
		Detects: "Docker set the policy of FORWARD to DROP, and no rule accepts the traffic of Pods.",
		Symptom: "Pods cannot reach anything outside their node and cannot be reached from there, although every Pod runs and the node is Ready.",
		How: "Table filter of an IPv4 iptables backend has a chain DOCKER, and packets of Pods to other machines, sent through a copy of the " +
			"node's network, are lost by the policy DROP of FORWARD. packetfilter.forward-drop judges rules that drop.",
		Remedy: "set net.ipv4.ip_forward=1 before Docker starts, so that it does not change the policy of " +
			"FORWARD, and run `iptables -P FORWARD ACCEPT`",
		TradeOff: "With policy ACCEPT, the node also forwards for its neighbours, as any Kubernetes node does.",
		Ref:      "https://docs.docker.com/engine/network/packet-filtering-firewalls/",
		Inspect:  inspectDockerForwardDrop,
	}
}

func inspectDockerForwardDrop(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("FORWARD accepts Pod traffic")
	sets, err := h.Rulesets(ctx)
	if err != nil {
		return s, err
	}
	docker := slices.ContainsFunc(ruleset.Tables(sets, "filter"), func(t *ruleset.Table) bool {
		return t.Family != ruleset.IPv6 && t.Chain("DOCKER") != nil
	})
	if !docker {
		s.Skip = "no Docker rules found"
		return s, nil
	}
	losses, err := lossesTo(ctx, h, sets, audit.ToOutside)
	losses = slices.DeleteFunc(losses, func(l audit.Loss) bool { return !isDockersPolicy(sets, &l) })
	if fail(&s, losses, map[string]string{audit.ToOutside: "FORWARD drops packets of Pods"}); len(losses) > 0 {
		program := audit.Program(&losses[0])
		s.Remedy = "run `" + program + " -P FORWARD ACCEPT` and set net.ipv4.ip_forward=1 before Docker starts, or it sets FORWARD to DROP again"
	}
	return s, err
}
