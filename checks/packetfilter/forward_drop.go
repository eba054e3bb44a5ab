package packetfilter

import (
	"context"
	"errors"
	"strings"

	"nodegate/checks"
	"nodegate/checks/noderules"
	"nodegate/internal/host"
	"nodegate/internal/ruleset"
	"nodegate/policy"
)

// forwardDrop detects a firewall on the node that drops the traffic of Pods before a rule accepts it.
func forwardDrop() checks.Problem {
	return checks.Problem{
		Name: "packetfilter.forward-drop", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn, Moves: true,
		Detects: "A DROP or REJECT for all packets comes before the rule that accepts the traffic of Pods.",
		Symptom: "Pods cannot reach anything outside their node, for example with ufw, with the REJECT that " +
			"Enterprise Linux has at the end of FORWARD, or with an /etc/nftables.conf whose chain forward has " +
			"policy drop.",
		How: "The check follows raw PREROUTING, mangle PREROUTING, mangle FORWARD and filter FORWARD in the " +
			"order of their hooks, including jumps. It looks for a DROP or REJECT without a condition, or " +
			"FORWARD's policy DROP, before an ACCEPT of new connections; it ignores rules with conditions. In " +
			"addition, every base chain of nft at hook forward must let a packet pass, independently of the " +
			"others: a chain drops everything if no rule accepts new connections or jumps elsewhere before its " +
			"drop, reject or policy drop. If Docker is present, docker.forward-drop judges FORWARD.",
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
	kubernetes := false
	var got []string
	for _, set := range sets {
		kubernetes = kubernetes || set.NFT != nil
		for _, save := range set.Saves {
			if filter := save.Table("filter"); filter != nil {
				kubernetes = kubernetes || filter.Declares("KUBE-FORWARD")
			}
			for _, step := range [][2]string{{"raw", "PREROUTING"}, {"mangle", "PREROUTING"}, {"mangle", "FORWARD"}, {"filter", "FORWARD"}} {
				t := save.Table(step[0])
				if t == nil || step[0] == "filter" && t.Chain("DOCKER") != nil {
					continue
				}
				drop, decided := firstVerdict(t, step[1], map[string]bool{})
				chain := t.Chain(step[1])
				switch {
				case drop != nil:
					s.Evidence = append(s.Evidence, checks.Seen(t.Source, drop.Text))
				case !decided && chain != nil && chain.Policy == "DROP":
					s.Evidence = append(s.Evidence, checks.Seen(t.Source, ":"+step[1]+" DROP"))
				default:
					continue
				}
				got = append(got, step[0]+" "+step[1]+" drops in "+ruleset.Program(t.Source))
			}
		}
	}
	others, err := h.Rules.Others(ctx)
	if errors.Is(err, host.ErrNotRecorded) {
		s.Evidence = append(s.Evidence, checks.Seen("nf_tables", err.Error()))
	} else if err != nil {
		return s, err
	}
	for _, drop := range others.Drops {
		s.Evidence = append(s.Evidence, checks.Seen("nf_tables", drop))
		chain, _, _ := strings.Cut(drop, ":")
		got = append(got, chain+" drops")
	}
	switch {
	case !kubernetes:
		s.Skip = noderules.None
	case got != nil:
		s.Differs(strings.Join(got, ", "), "")
	}
	return s, nil
}

// firstVerdict follows a chain as a new packet of a Pod does, up to the rule that decides. It returns that rule if it
// drops everything, and only decided if it accepts new packets.
func firstVerdict(t *ruleset.Table, chain string, seen map[string]bool) (drop *ruleset.Rule, decided bool) {
	seen[chain] = true
	for r := range t.Rules(chain) {
		switch {
		case r.Always() && (r.Target == "DROP" || r.Target == "REJECT"):
			return r, true
		case excludesNew(r.Extra().States):
		case r.Target == "ACCEPT" && !isKubernetesChain(chain):
			return nil, true
		case r.Jump != 0 && !seen[r.Target]:
			if inner, is := firstVerdict(t, r.Target, seen); is && (inner == nil || r.Always()) {
				return inner, true
			}
		}
	}
	return nil, false
}
