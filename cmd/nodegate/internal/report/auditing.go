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
	Services int       `json:"services"` // Service ports in the rules
	Findings int       `json:"findings"` // findings of the last round
}

// NewAuditing returns the document for the progress of an audit.
func NewAuditing(k audit.Progress) *Auditing {
	return &Auditing{
		Last: k.Audited, Waiting: k.Waiting, Rounds: k.Rounds, Reads: k.Reads, Services: k.Services,
		Findings: len(k.Findings),
	}
}

func (e *exposition) writeAuditing(a *Auditing) {
	for _, m := range []struct {
		name, kind, help string
		value            int64
	}{
		{"nodegate_audit_rounds_total", "counter", "Comparisons of kube-proxy's rules with the API.", int64(a.Rounds)},
		{"nodegate_audit_reads_total", "counter", "Reads of kube-proxy's rules.", int64(a.Reads)},
		{"nodegate_audit_service_ports", "gauge", "Service ports in the rules.", int64(a.Services)},
		{"nodegate_audit_findings", "gauge", "Findings of the last round, including unknown ones.", int64(a.Findings)},
		{"nodegate_audit_last_timestamp_seconds", "gauge", "When the last round ended; 0 before the first.", max(0, a.Last.Unix())},
		{"nodegate_audit_waiting_timestamp_seconds", "gauge", "When the oldest change that no round has compared was seen; 0 without one.",
			max(0, a.Waiting.Unix())},
	} {
		e.writeMetric(m.name, m.kind, m.help)
		fmt.Fprintf(e, "%s %d\n", m.name, m.value)
	}
}
