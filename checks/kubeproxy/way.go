package kubeproxy

import (
	"cmp"
	"context"
	"errors"
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
		How: "The check follows new packets from Pods, from the node and from other machines through raw, mangle, nat and " +
			"filter of all backends, in the kernel's order. It fails if every way of a packet ends before kube-proxy's " +
			"chain: in a DROP or REJECT, an ACCEPT or RETURN of table nat, a NOTRACK, or a DNAT to elsewhere. It also follows " +
			"packets to the endpoints of each Service, replies, and packets to endpoints on this node, and judges policies. Chains at hooks of " +
			"links and bridges count if they drop every packet of Pods. It warns of a SNAT to an address that this node lacks. If the rules " +
			"do not decide a condition (a set, a rate limit), the packet takes both ways. Addresses of the node's links tell " +
			"NodeLocal DNSCache from its remains.",
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
	mode, findings := audit.Reach(ctx, h, sets)
	undecided := func(f audit.Finding) bool { return f.Verdict == verdict.Unknown }
	switch i := slices.IndexFunc(findings, undecided); {
	case mode == "":
		s.Skip = "no rules of kube-proxy's iptables or nftables mode found"
	case i >= 0 && len(slices.DeleteFunc(slices.Clone(findings), undecided)) == 0:
		return s, errors.New(findings[i].Message)
	case len(findings) > 0:
		findings = slices.DeleteFunc(findings, undecided)
		noderules.Rules{}.Fail(&s, findings)
		s.Minor = !slices.ContainsFunc(findings, func(f audit.Finding) bool { return f.Verdict != verdict.Warn })
		s.Got = "taken by a rule in " + findings[0].Table + " " + findings[0].Chain
	default:
		for _, set := range sets {
			err = cmp.Or(err, set.Unread)
		}
	}
	return s, err
}
