package conntrack

import (
	"context"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// conntrackHeadroom detects a table over 80 % full, early enough to act.
func conntrackHeadroom() checks.Problem {
	return checks.Problem{
		Name: "conntrack.headroom", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn,
		Detects: "The connection tracking table is over 80 % full.",
		Symptom: "None yet. When the table is full, new connections are dropped and the kernel logs " +
			"\"nf_conntrack: table full, dropping packet\".",
		How:      "net.netfilter.nf_conntrack_count is over 80 % of net.netfilter.nf_conntrack_max (over 95 %, conntrack.full reports it).",
		Remedy:   remedyConntrack,
		TradeOff: costConntrack,
		Ref:      refConntrack,
		Inspect: func(_ context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
			return inspectConntrackCount(h, 80, "conntrack.full")
		},
	}
}
