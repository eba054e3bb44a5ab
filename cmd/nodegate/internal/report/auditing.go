package report

import (
	"fmt"
	"time"

	"nodegate/cmd/nodegate/internal/audit/settle"
)

// Auditing is what watch has done about the policy's audit block.
type Auditing struct {
	Last     time.Time `json:"last"`     // the end of the last round, zero before the first
	Rounds   int       `json:"rounds"`   // times that rules and API were compared
	Reads    int       `json:"reads"`    // times that the rules were read
	Changes  int       `json:"changes"`  // Services that changed in the API, each counted once a round
	Services int       `json:"services"` // ports of Services in the rules
	Findings int       `json:"findings"` // of the last round
	Delay    Delay     `json:"delay"`
}

// Delay is how long changes of the API took to be in the rules: at most, as seen by reading them.
type Delay struct {
	Buckets map[string]int `json:"buckets"` // cumulative, by upper bound in seconds
	Sum     float64        `json:"sumSeconds"`
	Count   int            `json:"count"`
}

// NewAuditing returns the document of what was kept.
func NewAuditing(k settle.Progress) *Auditing {
	a := &Auditing{
		Last: k.Audited, Rounds: k.Rounds, Reads: k.Reads, Changes: k.Changes, Services: k.Services, Findings: len(k.Findings),
		Delay: Delay{Buckets: map[string]int{}, Sum: k.Delay.Sum.Seconds(), Count: k.Delay.Count},
	}
	sum := 0
	for i, bound := range settle.DelayBounds() {
		sum += k.Delay.Buckets[i]
		a.Delay.Buckets[fmt.Sprint(bound.Seconds())] = sum
	}
	return a
}

func (e *exposition) auditing(a *Auditing) {
	for _, m := range []struct {
		name, kind, help string
		value            int64
	}{
		{"nodegate_audit_rounds_total", "counter", "Times that kube-proxy's rules and the API were compared.", int64(a.Rounds)},
		{"nodegate_audit_reads_total", "counter", "Times that the rules were read.", int64(a.Reads)},
		{"nodegate_audit_changes_total", "counter", "Services that changed in the API, each counted once a round.", int64(a.Changes)},
		{"nodegate_audit_service_ports", "gauge", "Ports of Services in the rules.", int64(a.Services)},
		{"nodegate_audit_findings", "gauge", "What the last round found wrong, or could not tell.", int64(a.Findings)},
		{"nodegate_audit_last_timestamp_seconds", "gauge", "When the last round ended; 0 before the first.", max(0, a.Last.Unix())},
	} {
		e.metric(m.name, m.kind, m.help)
		fmt.Fprintf(e, "%s %d\n", m.name, m.value)
	}
	const delay = "nodegate_audit_delay_seconds"
	e.metric(delay, "histogram", "How long changes of the API took to be in this node's rules, at most, as seen by reading them.")
	for _, bound := range settle.DelayBounds() {
		le := fmt.Sprint(bound.Seconds())
		fmt.Fprintf(e, "%s_bucket{le=%q} %d\n", delay, le, a.Delay.Buckets[le])
	}
	fmt.Fprintf(e, "%s_bucket{le=\"+Inf\"} %d\n%s_sum %g\n%s_count %d\n", delay, a.Delay.Count, delay, a.Delay.Sum, delay, a.Delay.Count)
}
