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

// exposition collects metrics in the Prometheus text format.
type exposition struct{ strings.Builder }

func (e *exposition) writeMetric(name, kind, help string) {
	fmt.Fprintf(e, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

func (e *exposition) writeTo(w io.Writer) error {
	_, err := io.WriteString(w, e.String())
	return err
}

// label quotes a label value for the exposition format.
func label(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(plain.Escape(s)) + `"`
}

func oneIf(b bool) int {
	if b {
		return 1
	}
	return 0
}

// writePrometheus writes the metrics of a report, for node_exporter's textfile collector.
func writePrometheus(w io.Writer, r Report) error {
	var e exposition
	stage := r.Stage
	if r.Audit != nil {
		stage = "audit"
	}
	e.writeReport(r, stage)
	return e.writeTo(w)
}

// writeReport writes a report's metrics. node_exporter reads several files of one machine;
// the stage label separates the metrics of watch, audit and each stage of check.
func (e *exposition) writeReport(r Report, stage string) {
	stageLabel := "stage=" + label(stage)
	e.writeMetric("nodegate_requirement", "gauge", "1 for the requirement's verdict; the other verdicts have no series.")
	for _, res := range r.Results {
		fmt.Fprintf(e, "nodegate_requirement{name=%s,severity=%s,%s,verdict=%s} 1\n",
			label(res.Name), label(string(res.Severity)), stageLabel, label(res.Verdict.String()))
	}
	e.writeMetric("nodegate_build_info", "gauge", "1; the labels are nodegate's version and the policy's digest.")
	fmt.Fprintf(e, "nodegate_build_info{policy=%s,%s,version=%s} 1\n", label(r.Policy.Digest), stageLabel, label(r.Version))
	for _, m := range []struct {
		name, help string
		value      float64
	}{
		{"nodegate_pass", "Whether every blocking requirement passes, 1 or 0.", float64(oneIf(r.Verdict == verdict.Pass))},
		{"nodegate_enforce", "1: the gate holds the unit of a node that does not pass; 0: it only reports.",
			float64(oneIf(r.Policy.Enforce == ""))},
		{"nodegate_check_duration_seconds", "Duration of the check.", r.DurationMs / 1000},
		{"nodegate_last_check_timestamp_seconds", "Start time of the check.", float64(r.began().Unix())},
	} {
		e.writeMetric(m.name, "gauge", m.help)
		fmt.Fprintf(e, "%s{%s} %s\n", m.name, stageLabel, strconv.FormatFloat(m.value, 'f', -1, 64))
	}
}

// Metrics writes the metrics of the report and of watch's own work.
func (d Watch) Metrics(w io.Writer) error {
	var e exposition
	e.writeReport(d.Report, "watch")
	e.writeMetric("nodegate_watch_corrections_total", "counter", "Corrections of drifted settings.")
	for _, name := range slices.Sorted(maps.Keys(d.Corrected)) {
		fmt.Fprintf(&e, "nodegate_watch_corrections_total{name=%s} %d\n", label(name), d.Corrected[name])
	}
	e.writeMetric("nodegate_watch_fight", "gauge", "1 while another program keeps changing this setting back.")
	for _, f := range d.Fights {
		fmt.Fprintf(&e, "nodegate_watch_fight{name=%s} 1\n", label(f.Name))
	}
	for _, m := range []struct {
		name, kind, help string
		value            int
	}{
		{"nodegate_watch_fights", "gauge", "Number of current fights.", len(d.Fights)},
		{"nodegate_watch_links_set_total", "counter", "Links that were configured when they appeared.", d.Links},
		{"nodegate_watch_link_events_total", "counter", "Link notifications received from the kernel.", d.LinkEvents},
		{"nodegate_watch_resyncs_total", "counter", "Full inspections of all links after missed notifications.", d.Resyncs},
		{"nodegate_watch_rounds_total", "counter", "Full inspections of all requirements.", d.Rounds},
		{"nodegate_watch_break_glass", "gauge", "1 while break-glass is in force: nothing is corrected.", oneIf(d.BreakGlass != "")},
		{"nodegate_watch_policy_error", "gauge", "1 while the policy has an error and the last good one is in use.",
			oneIf(d.PolicyError != "")},
		{"nodegate_watch_start_timestamp_seconds", "gauge", "Start time of watch.", int(d.Since.Unix())},
		{"nodegate_watch_interval_seconds", "gauge", "Interval between full inspections.", int(d.Interval / time.Second)},
	} {
		e.writeMetric(m.name, m.kind, m.help)
		fmt.Fprintf(&e, "%s %d\n", m.name, m.value)
	}
	if d.Audit != nil {
		e.writeAuditing(d.Audit)
	}
	return e.writeTo(w)
}
