package report

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"nodegate/internal/plain"
	"nodegate/internal/verdict"
)

// exposition is metrics in Prometheus' text format.
type exposition struct{ strings.Builder }

func (e *exposition) metric(name, kind, help string) {
	fmt.Fprintf(e, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

func (e *exposition) writeTo(w io.Writer) error {
	_, err := io.WriteString(w, e.String())
	return err
}

// label quotes a label value as the exposition format asks.
func label(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(plain.Escape(s)) + `"`
}

func oneIf(b bool) int {
	if b {
		return 1
	}
	return 0
}

// prometheus writes the metrics of a report, for node_exporter's textfile collector.
func prometheus(w io.Writer, r Report) error {
	var e exposition
	stage := r.Stage
	if r.Audit != nil {
		stage = "audit"
	}
	e.report(r, stage)
	return e.writeTo(w)
}

// report writes a report's metrics. node_exporter reads several files of one machine:
// the stage keeps those of watch, audit and each stage of check apart.
func (e *exposition) report(r Report, stage string) {
	of := "stage=" + label(stage)
	e.metric("nodegate_requirement", "gauge", "Whether the requirement has this verdict, 1 or 0.")
	for _, res := range r.Results {
		for _, v := range []verdict.Verdict{verdict.Pass, verdict.Warn, verdict.Fail, verdict.Unknown, verdict.Skipped} {
			fmt.Fprintf(e, "nodegate_requirement{name=%s,severity=%s,%s,verdict=%s} %d\n",
				label(res.Name), label(string(res.Severity)), of, label(v.String()), oneIf(res.Verdict == v))
		}
	}
	for _, m := range []struct {
		name, help string
		value      float64
	}{
		{"nodegate_pass", "Whether every blocking requirement passes, 1 or 0.", float64(oneIf(r.Verdict == verdict.Pass))},
		{"nodegate_enforce", "1: the gate holds the unit of a node that does not pass; 0: it only reports.",
			float64(oneIf(r.Policy.Enforce == ""))},
		{"nodegate_check_duration_seconds", "How long the check took.", r.DurationMs / 1000},
		{"nodegate_last_check_timestamp_seconds", "When the check began.", float64(r.began().Unix())},
	} {
		e.metric(m.name, "gauge", m.help)
		fmt.Fprintf(e, "%s{%s} %s\n", m.name, of, strconv.FormatFloat(m.value, 'f', -1, 64))
	}
}

// Metrics writes the report's metrics, and what watch has done.
func (d Watch) Metrics(w io.Writer) error {
	var e exposition
	e.report(d.Report, "watch")
	e.metric("nodegate_watch_corrections_total", "counter", "How often a requirement that had drifted was corrected.")
	for _, name := range slices.Sorted(maps.Keys(d.Corrected)) {
		fmt.Fprintf(&e, "nodegate_watch_corrections_total{name=%s} %d\n", label(name), d.Corrected[name])
	}
	e.metric("nodegate_watch_fight", "gauge", "1 while another program keeps changing this back.")
	for _, f := range d.Fights {
		fmt.Fprintf(&e, "nodegate_watch_fight{name=%s} 1\n", label(f.Name))
	}
	for _, m := range []struct {
		name, kind, help string
		value            int
	}{
		{"nodegate_watch_fights", "gauge", "How many fights there are.", len(d.Fights)},
		{"nodegate_watch_links_set_total", "counter", "Links that were set when they appeared.", d.Links},
		{"nodegate_watch_link_events_total", "counter", "Notices about links that the kernel sent.", d.LinkEvents},
		{"nodegate_watch_resyncs_total", "counter", "Times that notices were missed and every link was inspected again.", d.Resyncs},
		{"nodegate_watch_rounds_total", "counter", "Times that everything was inspected.", d.Rounds},
		{"nodegate_watch_break_glass", "gauge", "1 while nodegate is switched off: nothing is corrected.", oneIf(d.BreakGlass != "")},
		{"nodegate_watch_policy_error", "gauge", "1 while the policy cannot be read and the last good one is in use.",
			oneIf(d.PolicyError != "")},
		{"nodegate_watch_start_timestamp_seconds", "gauge", "When watch was started.", int(d.Since.Unix())},
		{"nodegate_watch_interval_seconds", "gauge", "How often everything is inspected.", int(d.Interval / time.Second)},
	} {
		e.metric(m.name, m.kind, m.help)
		fmt.Fprintf(&e, "%s %d\n", m.name, m.value)
	}
	if d.Audit != nil {
		e.auditing(d.Audit)
	}
	return e.writeTo(w)
}
