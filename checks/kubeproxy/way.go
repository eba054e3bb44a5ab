package kubeproxy

import (
	"context"
	"slices"

	"nodegate/checks"
	"nodegate/checks/noderules"
	"nodegate/internal/audit"
	"nodegate/internal/host"
	"nodegate/internal/verdict"
	"nodegate/policy"
)

// packetsReach detects rules of other programs that take packets before kube-proxy's rules.
func packetsReach() checks.Problem {
	return checks.Problem{
		Name: "kubeproxy.way", Stages: []checks.Stage{checks.Run}, Severity: policy.Block, Moves: true,
		Detects: "A rule of another program takes the packets of Services before kube-proxy's rules, or drops the packets " +
			"of Pods to other machines.",
		Symptom: "Connections to every Service, or to one, time out or are refused, although kube-proxy's rules are correct. Or Pods reach " +
			"no other machine.",
		How: "The check copies the node's links, addresses, routes, routing rules and rules into scratch namespaces on the same kernel, and " +
			"sends " +
			"packets there: of Pods, of the node and of other machines, to Services, their endpoints, hostPorts, the API server and outside. Of " +
			"kube-proxy's rules the copy has those of some Services. Packets that get no answer are sent again; then rules, routes and routing " +
			"rules of other programs are left out of the copy until the packets pass. The node notices nothing.",
		Remedy:   "remove the rule that the evidence names, and change the program that adds it, or it comes back",
		TradeOff: "The program that added the rule may need it for its own traffic: give it a condition instead.",
		Ref:      "https://github.com/kubernetes/dns/issues/690",
		Inspect:  inspectWay,
	}
}

func inspectWay(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("packets reach kube-proxy's rules")
	sets, err := h.Rulesets(ctx)
	if err != nil {
		return s, err
	}
	rep := audit.Judge(sets, audit.Options{})
	if rep.Mode != "iptables" && rep.Mode != "nftables" {
		s.Skip = "no rules of kube-proxy's iptables or nftables mode found"
		return s, nil
	}
	ways, err := audit.AskWays(ctx, h, &rep)
	if s.Skip = ways.Skipped; err != nil || s.Skip != "" {
		return s, err
	}
	findings, notes := audit.FindLosses(&ways)
	for _, note := range notes {
		s.Evidence = append(s.Evidence, checks.Seen("note", note))
	}
	if len(findings) > 0 {
		noderules.Rules{}.Fail(&s, findings)
		s.Minor = !slices.ContainsFunc(findings, func(f audit.Finding) bool { return f.Verdict != verdict.Warn })
		s.Got = findings[0].Message
	}
	return s, nil
}
