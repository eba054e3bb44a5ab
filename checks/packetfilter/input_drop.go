package packetfilter

import (
	"context"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/checks/noderules"
	"nodegate/internal/audit"
	"nodegate/internal/host"
	"nodegate/internal/ruleset"
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
	s := checks.Passing("the cluster's packets reach this node")
	sets, err := h.Rulesets(ctx)
	if err != nil {
		return s, err
	}
	if !isKubernetes(sets) {
		s.Skip = noderules.None
		return s, nil
	}
	losses, err := lossesTo(ctx, h, sets, audit.ToKubelet, audit.ToOverlay)
	fail(&s, losses, map[string]string{audit.ToKubelet: "kubelet's port is closed", audit.ToOverlay: "the overlay network's port is closed"})
	return s, err
}

// lossesTo returns what loses packets to destinations of some kinds, in a copy of the node's network.
func lossesTo(ctx context.Context, h *host.Host, sets []*ruleset.Set, kinds ...string) (list []audit.Loss, err error) {
	rep := audit.Judge(sets, audit.Options{})
	ways, err := audit.AskWays(ctx, h, &rep)
	for _, l := range ways.Losses {
		l.Flows = slices.DeleteFunc(l.Flows, func(f audit.Flow) bool { return f.Lost == 0 || !slices.Contains(kinds, f.Kind) })
		if len(l.Flows) > 0 && audit.IsFault(&l, l.Flows) {
			list = append(list, l)
		}
	}
	return list, err
}

// fail makes a state fail with losses. words has what each kind of destination means.
func fail(s *checks.State, losses []audit.Loss, words map[string]string) {
	var got []string
	for i := range losses {
		l := &losses[i]
		if got = append(got, words[l.Flows[0].Kind]); i == 0 {
			s.Remedy = audit.Remedy(l, l.Flows)
		}
		s.Evidence = append(s.Evidence, checks.Seen(audit.Program(l), audit.Describe(l)+": "+l.Flows[0].Name))
	}
	if got != nil {
		s.Differs(strings.Join(slices.Compact(got), ", "), s.Remedy)
	}
}
