package report

import (
	"fmt"
	"time"

	"nodegate/internal/audit"
)

// Auditing holds the progress of the audit that the policy's audit block makes watch run.
type Auditing struct {
	Last     time.Time `json:"last"`     // the end of the last round, zero before the first
	Waiting  time.Time `json:"waiting"`  // when the oldest change that no round has compared was seen, zero without one
	Rounds   int       `json:"rounds"`   // comparisons of the rules with the API
	Reads    int       `json:"reads"`    // reads of the rules
	Changes  int       `json:"changes"`  // Services that changed in the API, each counted once a round
	Services int       `json:"services"` // Service ports in the rules
	Findings int       `json:"findings"` // findings of the last round
	Delay    Delay     `json:"delay"`    // from a change of the API to this node's rules
}

// Delay is a histogram of the time from a change in the API to the first read of the rules that shows it. It is an upper bound of the
// real delay.
type Delay struct {
	Buckets map[string]int `json:"buckets"`    // cumulative, by upper bound in seconds
	Sum     float64        `json:"sumSeconds"` // of all delays
	Count   int            `json:"count"`      // changes that were measured
}

// NewAuditing returns the document for the progress of an audit.
func NewAuditing(k audit.Progress) *Auditing {
	a := &Auditing{
		Last: k.Audited, Waiting: k.Waiting, Rounds: k.Rounds, Reads: k.Reads, Changes: k.Changes, Services: k.Services,
		Findings: len(k.Findings),
		Delay:    Delay{Buckets: map[string]int{}, Sum: k.Delay.Sum.Seconds(), Count: k.Delay.Count},
	}
	sum := 0
	for i, bound := range audit.DelayBounds() {
		sum += k.Delay.Buckets[i]
		a.Delay.Buckets[fmt.Sprint(bound.Seconds())] = sum
	}
	return a
}

func (e *exposition) writeAuditing(a *Auditing) {
	for _, m := range []struct {
		name, kind, help string
		value            int64
	}{
		{"nodegate_audit_rounds_total", "counter", "Comparisons of kube-proxy's rules with the API.", int64(a.Rounds)},
		{"nodegate_audit_reads_total", "counter", "Reads of kube-proxy's rules.", int64(a.Reads)},
		{"nodegate_audit_changes_total", "counter", "Services that changed in the API, each counted once a round.", int64(a.Changes)},
		{"nodegate_audit_service_ports", "gauge", "Service ports in the rules.", int64(a.Services)},
		{"nodegate_audit_findings", "gauge", "Findings of the last round, including unknown ones.", int64(a.Findings)},
		{"nodegate_audit_last_timestamp_seconds", "gauge", "When the last round ended; 0 before the first.", max(0, a.Last.Unix())},
		{"nodegate_audit_waiting_timestamp_seconds", "gauge", "When the oldest change that no round has compared was seen; 0 without one.",
			max(0, a.Waiting.Unix())},
	} {
		e.writeMetric(m.name, m.kind, m.help)
		fmt.Fprintf(e, "%s %d\n", m.name, m.value)
	}
	const delay = "nodegate_audit_delay_seconds"
	e.writeMetric(delay, "histogram", "Time from a change in the API until a read of this node's rules shows it (upper bound).")
	for _, bound := range audit.DelayBounds() {
		le := fmt.Sprint(bound.Seconds())
		fmt.Fprintf(e, "%s_bucket{le=%q} %d\n", delay, le, a.Delay.Buckets[le])
	}
	fmt.Fprintf(e, "%s_bucket{le=\"+Inf\"} %d\n%s_sum %g\n%s_count %d\n", delay, a.Delay.Count, delay, a.Delay.Sum, delay, a.Delay.Count)
}
