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
	return inspectLosses(ctx, h, "Pod traffic passes", map[string]string{audit.ToOutside: "packets of Pods are lost"})
}

// inspectLosses fails if something loses packets of Pods or of other machines to destinations of some kinds, in a copy of the node's
// network. words has what each kind means.
func inspectLosses(ctx context.Context, h *host.Host, want string, words map[string]string) (checks.State, error) {
	s := checks.Passing(want)
	sets, err := h.Rulesets(ctx)
	if err != nil {
		return s, err
	}
	if !isKubernetes(sets) {
		s.Skip = noderules.None
		return s, nil
	}
	rep := audit.Judge(sets, audit.Options{})
	ways, err := audit.AskWays(ctx, h, &rep)
	s.Skip = ways.Skipped
	var got []string
	for _, l := range ways.Losses {
		l.Flows = slices.DeleteFunc(l.Flows, func(f audit.Flow) bool { return f.Lost == 0 || f.Doubt != "" || f.Node || words[f.Kind] == "" })
		if len(l.Flows) == 0 || !audit.IsFault(&l, l.Flows) {
			continue
		}
		if got == nil {
			s.Remedy = audit.Remedy(&l, l.Flows)
		}
		got = append(got, words[l.Flows[0].Kind])
		s.Evidence = append(s.Evidence, checks.Seen(audit.Program(&l), audit.Describe(&l)+": "+l.Flows[0].Name))
	}
	if got != nil {
		s.Differs(strings.Join(slices.Compact(got), ", "), s.Remedy)
	}
	return s, err
}

// isKubernetes reports whether the rules have chains of kube-proxy or kubelet.
func isKubernetes(sets []*ruleset.Set) bool {
	return slices.ContainsFunc(sets, func(set *ruleset.Set) bool { return set.NFT != nil }) ||
		slices.ContainsFunc(ruleset.Tables(sets, "filter"), func(t *ruleset.Table) bool {
			return t.Declares("KUBE-FORWARD") || t.Declares("KUBE-FIREWALL")
		})
}
