package packetfilter

import (
	"context"
	"errors"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/ruleset"
	"nodegate/policy"
)

// incompatible detects rules that nft wrote into an iptables table: they make the whole table unreadable for iptables.
func incompatible() checks.Problem {
	return checks.Problem{
		Name: "packetfilter.incompatible", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn, Moves: true,
		Detects: "A table of iptables-nft contains rules that only nft can express: iptables can neither print " +
			"the table nor change its rules by number.",
		Symptom: "Calico's agent restarts and logs \"incompatible, use 'nft' tool\"; iptables-save prints nothing " +
			"of the table, and every check of its rules is unknown.",
		How: "iptables-nft-save prints \"Table `filter' is incompatible, use 'nft' tool\" instead of filter, nat, mangle or raw.",
		Remedy: "run `nft -a list table ip filter` to find the rules that iptables cannot express, remove them " +
			"with `nft delete rule`, and put them into a table of their own",
		TradeOff: "A separate table is evaluated in addition to iptables' table: an accept in one does not override a drop in the other.",
		Ref:      "https://github.com/projectcalico/calico/issues/8403",
		Inspect:  inspectIncompatible,
	}
}

func inspectIncompatible(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("tables that iptables can print")
	_, err := h.Rulesets(ctx)
	if errors.Is(err, ruleset.ErrIncompatible) {
		s.Evidence = []checks.Evidence{checks.Seen("iptables-save", err.Error())}
		s.Differs("a table that iptables cannot print", "")
		return s, nil
	}
	return s, err
}
