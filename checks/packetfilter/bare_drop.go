package packetfilter

import (
	"context"
	"strings"

	"nodegate/checks"
	"nodegate/internal/audit"
	"nodegate/internal/host"
	"nodegate/internal/ruleset"
	"nodegate/policy"
)

// bareDrop detects a DROP that lost its match: an iptables that does not understand a rule writes it back without the match.
func bareDrop() checks.Problem {
	return checks.Problem{
		Name: "iptables.bare-drop", Stages: []checks.Stage{checks.Run}, Severity: policy.Block, Moves: true,
		Detects: "KUBE-FIREWALL contains a DROP without a match: the mark match was lost between iptables " +
			"versions.",
		Symptom: "The node drops every packet that it sends and receives: it becomes NotReady, and SSH " +
			"connections end.",
		How: "In an iptables backend, table filter contains -A KUBE-FIREWALL -j DROP without a condition " +
			"(iptables 1.8.7 and 1.8.8 with nf_tables: kubelet uses one on the host, kube-proxy's image has the " +
			"other).",
		Remedy: "run `iptables -D KUBE-FIREWALL -j DROP`, then use the same iptables version for kubelet and " +
			"the host",
		TradeOff: "Until kubelet writes its rules again, marked packets are not dropped; kube-proxy 1.25 and " +
			"later marks none.",
		Ref:     "https://github.com/kubernetes/kubernetes/issues/112477",
		Inspect: inspectBareDrop,
	}
}

func inspectBareDrop(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("no DROP without a match")
	sets, err := h.Rulesets(ctx)
	if err != nil {
		return s, err
	}
	var got, commands []string
	found := false
	for _, t := range ruleset.Tables(sets, "filter") {
		if t.Chain("KUBE-FIREWALL") == nil {
			continue
		}
		found = true
		bare := audit.BareDrops(t)
		for _, r := range bare {
			s.Evidence = append(s.Evidence, checks.SeenRule(t.Source, r.Text))
			commands = append(commands, ruleset.Program(t.Source)+" -D"+strings.TrimPrefix(r.Text, "-A"))
		}
		if bare == nil {
			s.Evidence = append(s.Evidence, checks.Seen(t.Source, "KUBE-FIREWALL: every DROP has a match"))
		} else {
			got = append(got, "bare DROP in "+ruleset.Program(t.Source))
		}
	}
	switch {
	case !found:
		s.Skip = "no chain KUBE-FIREWALL"
	case got != nil:
		s.Differs(strings.Join(got, ", "), "run `"+strings.Join(commands, "; ")+"`, then use the same iptables version for kubelet and the host")
	}
	return s, nil
}
