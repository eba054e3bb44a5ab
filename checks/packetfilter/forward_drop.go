package packetfilter

import (
	"context"
	"errors"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/ruleset"
	"nodegate/policy"
)

// forwardDrop: a firewall of the node drops what Pods send, before a rule accepts it.
func forwardDrop() checks.Problem {
	return checks.Problem{
		Name: "packetfilter.forward-drop", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn, Moves: true,
		Detects: "The way of Pods' packets meets a DROP or REJECT for everything before a rule that accepts them.",
		Symptom: "Pods reach nothing off their node; with ufw, with the REJECT that Enterprise Linux has at the end of FORWARD, or with an " +
			"/etc/nftables.conf whose chain forward has policy drop.",
		How: "raw PREROUTING, mangle PREROUTING and mangle FORWARD, then filter FORWARD, are followed in their hooks' order, jumps included: a " +
			"DROP or REJECT without a condition, or FORWARD's policy DROP, before an ACCEPT of new connections. Rules with conditions are passed " +
			"over. Beside them every base chain of nft at hook forward must let a packet pass, whatever the others say: one drops all where " +
			"no rule accepts new connections or leads elsewhere before its drop, reject or policy drop. Where Docker is, docker.forward-drop " +
			"judges FORWARD.",
		Remedy: "put the CNI's ACCEPT first: restart its agent, which inserts it; with ufw: ufw default allow routed; in a table of nft's own " +
			"let the Pods' links pass, or give the chain policy accept",
		TradeOff: "The node forwards for its neighbours too, as any Kubernetes node does.",
		Ref:      "https://github.com/moby/moby/issues/49536",
		Inspect:  inspectForwardDrop,
	}
}

func inspectForwardDrop(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("Pods' packets pass")
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
		s.Skip = "no rules of kube-proxy here"
	case got != nil:
		s.Differs(strings.Join(got, ", "), "")
	}
	return s, nil
}

// firstVerdict follows a chain as a new packet of a Pod does: the first rule that drops everything, or decided where a
// rule accepts new packets before.
func firstVerdict(t *ruleset.Table, chain string, seen map[string]bool) (drop *ruleset.Rule, decided bool) {
	seen[chain] = true
	for r := range t.Rules(chain) {
		switch {
		case r.Always() && (r.Target == "DROP" || r.Target == "REJECT"):
			return r, true
		case onlyOld(r.Extra().States):
		case r.Target == "ACCEPT" && !ofKubernetes(chain):
			return nil, true
		case r.Jump != 0 && !seen[r.Target]:
			if inner, is := firstVerdict(t, r.Target, seen); is && (inner == nil || r.Always()) {
				return inner, true
			}
		}
	}
	return nil, false
}
