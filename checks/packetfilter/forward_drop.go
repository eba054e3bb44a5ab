package packetfilter

import (
	"cmp"
	"context"
	"errors"
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
			"FORWARD, or with an /etc/nftables.conf whose chain forward has policy drop.",
		How: "The check follows a new packet from a Pod to another machine through raw, mangle, nat and filter of all backends, in the " +
			"kernel's order. It fails if every way of the packet ends in a DROP, a REJECT or a policy DROP. If the rules do not decide a " +
			"condition (the Pod's address, a set, a rate limit), the packet takes both ways. It also follows packets that come in by a Pods' link " +
			"which a rule names. In addition, every base chain of nft at hook forward must let a packet pass, independently of the others: a " +
			"chain drops everything if no rule accepts new connections or jumps elsewhere before its drop, reject or policy drop. If Docker is " +
			"present, docker.forward-drop judges FORWARD's policy.",
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
	var got []string
	links := audit.LinkNames(ctx, h)
	for _, family := range []string{ruleset.IPv4, ruleset.IPv6} {
		if family == ruleset.IPv6 && !servesIPv6(sets) {
			continue // the cluster has only IPv4
		}
		step, share, _, lost := audit.PodsLost(sets, family, links)
		if !lost || isDockersPolicy(sets, step) || audit.EnforcesPolicies(step.Owner()) {
			continue
		}
		if step.Program == "nft" {
			s.Evidence = append(s.Evidence, checks.Seen("nf_tables", step.Table+" "+step.Chain+": "+strings.ToLower(cmp.Or(step.Rule, step.Does))))
			got = append(got, strings.TrimSuffix(step.Table+" "+step.Chain+" drops "+share, " "))
			continue
		}
		s.Evidence = append(s.Evidence, checks.Seen(step.Source, stepText(step)))
		got = append(got, step.Table+" "+step.Hook+" drops "+share+"in "+ruleset.Program(step.Source))
	}
	others, err := h.Rules.Others(ctx)
	if errors.Is(err, host.ErrNotRecorded) {
		s.Evidence = append(s.Evidence, checks.Seen("nf_tables", err.Error()))
	} else if err != nil {
		return s, err
	}
	for _, drop := range others.Drops {
		chain, _, _ := strings.Cut(drop, ":")
		if !slices.Contains(got, chain+" drops") { // not found by the walk above
			s.Evidence = append(s.Evidence, checks.Seen("nf_tables", drop))
			got = append(got, chain+" drops")
		}
	}
	switch {
	case !isKubernetes(sets):
		s.Skip = noderules.None
	case got != nil:
		s.Differs(strings.Join(got, ", "), "")
	}
	return s, nil
}

// isKubernetes reports whether the rules have chains of kube-proxy or kubelet.
func isKubernetes(sets []*ruleset.Set) bool {
	return slices.ContainsFunc(sets, func(set *ruleset.Set) bool { return set.NFT != nil }) ||
		slices.ContainsFunc(ruleset.Tables(sets, "filter"), func(t *ruleset.Table) bool {
			return t.Declares("KUBE-FORWARD") || t.Declares("KUBE-FIREWALL")
		})
}

// servesIPv6 reports whether kube-proxy's rules may have Services for IPv6. Those of IPVS mode do not show it.
func servesIPv6(sets []*ruleset.Set) bool {
	for _, t := range ruleset.Tables(sets, "nat") {
		if t.Family == ruleset.IPv6 && slices.ContainsFunc(t.Chains, func(c *ruleset.Chain) bool {
			return strings.HasPrefix(c.Name, "KUBE-SVC-") || strings.HasPrefix(c.Name, "KUBE-SEP-") || c.Name == "KUBE-NODE-PORT"
		}) {
			return true
		}
	}
	return slices.ContainsFunc(sets, func(set *ruleset.Set) bool {
		return slices.ContainsFunc(set.NFT, func(t *ruleset.NFTTable) bool {
			ips := t.Sets["service-ips"]
			return t.Family == ruleset.IPv6 && ips != nil && len(ips.Elements) > 0
		})
	})
}

// isDockersPolicy reports whether a packet is dropped by the policy of a table with Docker's chains, which
// docker.forward-drop judges.
func isDockersPolicy(sets []*ruleset.Set, step audit.Step) bool {
	return step.Rule == "" && slices.ContainsFunc(ruleset.Tables(sets, "filter"), func(t *ruleset.Table) bool {
		return t.Source == step.Source && t.Chain("DOCKER") != nil
	})
}

// stepText returns a rule, or the policy of a chain as iptables-save prints it.
func stepText(step audit.Step) string {
	if step.Rule == "" {
		return ":" + step.Chain + " DROP"
	}
	return step.Rule
}
