package packetfilter

import (
	"context"
	"errors"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/ruleset"
	"nodegate/policy"
)

// incompatible: what nft has written into a table of iptables' hides the whole table.
func incompatible() checks.Problem {
	return checks.Problem{
		Name: "packetfilter.incompatible", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn, Moves: true,
		Detects: "A table of iptables-nft contains rules of nft's own: iptables can neither print it nor change it by number.",
		Symptom: "Calico's agent restarts and logs \"incompatible, use 'nft' tool\"; iptables-save shows nothing of the table, and every " +
			"check of its rules is unknown.",
		How: "iptables-nft-save prints \"Table `filter' is incompatible, use 'nft' tool\" instead of filter, nat, mangle or raw.",
		Remedy: "nft -a list table ip filter shows what does not look like iptables; take it away with nft delete " +
			"rule, and put it into a table of its own",
		TradeOff: "A table of its own is asked beside iptables': an accept in one does not overrule a drop in the other.",
		Ref:      "https://github.com/projectcalico/calico/issues/8403",
		Inspect:  inspectIncompatible,
	}
}

func inspectIncompatible(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("tables that iptables can print")
	_, err := h.Rulesets(ctx)
	if errors.Is(err, ruleset.ErrIncompatible) {
		s.Evidence = []checks.Evidence{checks.Seen("iptables-save", err.Error())}
		s.Differs("one that it cannot", "")
		return s, nil
	}
	return s, err
}
