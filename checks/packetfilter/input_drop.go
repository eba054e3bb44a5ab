package packetfilter

import (
	"context"

	"nodegate/checks"
	"nodegate/internal/audit"
	"nodegate/internal/host"
	"nodegate/policy"
)

// inputDrop detects a firewall on the node that drops the packets which the cluster sends to the node itself.
func inputDrop() checks.Problem {
	return checks.Problem{
		Name: "packetfilter.input-drop", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn, Moves: true,
		Detects: "A DROP or REJECT for all packets in INPUT comes before the rule that accepts the overlay network or connections to kubelet.",
		Symptom: "Pods of this node reach no Pod of another node, because VXLAN packets are lost. `kubectl logs` and `kubectl exec` time " +
			"out. The images of some clouds have such a REJECT at the end of INPUT.",
		How: "The check sends packets through a copy of the node's network, as kubeproxy.way does: from another node to the port of each VXLAN " +
			"link, and from the API server to kubelet's port 10250. It fails if a rule, a policy or a route loses them.",
		Remedy: "insert a rule that accepts the cluster's packets before the one that drops them, and save it in the firewall's " +
			"configuration",
		TradeOff: "The port is then open to every machine that the rule does not exclude: limit the rule to the addresses of the nodes.",
		Ref:      "https://github.com/k3s-io/k3s/issues/4847",
		Inspect:  inspectInputDrop,
	}
}

func inspectInputDrop(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	return inspectLosses(ctx, h, "the cluster's packets reach this node",
		map[string]string{audit.ToKubelet: "kubelet's port is closed", audit.ToOverlay: "the overlay network's port is closed"})
}
