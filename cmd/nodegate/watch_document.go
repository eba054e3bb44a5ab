package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/watch"
)

// watchDocument is what watch knows, as it leaves it in watchFile. Fields are
// added, never renamed.
type watchDocument struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	watch.State
	Written time.Time `json:"written"`
	Report  document  `json:"report"`
}

func newWatchDocument(h *host.Host, s watch.State) watchDocument {
	d := watchDocument{APIVersion: "nodegate/v1", Kind: "Watch", State: s, Written: time.Now().UTC()}
	d.Report = newDocument(h, s.Policy, s.Report)
	return d
}

// statusLine is the one line that `systemctl status` shows.
func statusLine(s watch.State) string {
	verdict := map[checks.Verdict]string{checks.Pass: "node holds", checks.Fail: "node DIFFERS", checks.Unknown: "could not tell"}[s.Report.Verdict()]
	corrected := 0
	for _, n := range s.Corrected {
		corrected += n
	}
	line := fmt.Sprintf("%s; %s, %s corrected, %s set", verdict, count(len(s.Report.Results), "requirement"), times(corrected), count(s.Links, "new link"))
	if n := len(s.Fights); n > 0 {
		line += "; " + count(n, "fight") + ": " + s.Fights[0].Name
	}
	if s.Off != "" {
		line += "; switched off by " + s.Off + ": nothing is corrected"
	}
	if s.PolicyError != "" {
		line += "; the policy cannot be read, the last good one is in use"
	}
	return line
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// pages is what the listener serves of w.
func pages(w *watch.Watcher) watch.Pages {
	return watch.Pages{
		Metrics: func(out io.Writer) error { return writeWatchMetrics(out, newWatchDocument(w.Host, w.State())) },
		Check: func(out io.Writer) (bool, error) {
			s := w.State()
			return s.Report.Verdict() == checks.Pass && healthy(s, time.Now()) == nil, encode(out, newDocument(w.Host, s.Policy, s.Report))
		},
		Health: func() error { return healthy(w.State(), time.Now()) },
	}
}

// healthy is nil while rounds come as they should. A round that is late by two
// is not: what was found before may be true no more.
func healthy(s watch.State, now time.Time) error {
	if s.LastRound.IsZero() {
		return errors.New("the first round is not over")
	}
	if ago := now.Sub(s.LastRound); ago > 3*s.Interval+roundSlack {
		return fmt.Errorf("the last round was %s ago, and one is due every %s", ago.Round(time.Second), s.Interval)
	}
	return nil
}

// roundSlack is what a round may take beyond the interval.
const roundSlack = 30 * time.Second

// writeWatchMetrics is the report's metrics, and what watch has done.
func writeWatchMetrics(out io.Writer, d watchDocument) error {
	if err := writePrometheus(out, d.Report); err != nil {
		return err
	}
	var b strings.Builder
	metric := func(name, kind, help string) {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
	}
	metric("nodegate_watch_corrections_total", "counter", "How often a requirement that had drifted was corrected.")
	for _, name := range slices.Sorted(maps.Keys(d.Corrected)) {
		fmt.Fprintf(&b, "nodegate_watch_corrections_total{name=%s} %d\n", label(name), d.Corrected[name])
	}
	metric("nodegate_watch_fight", "gauge", "1 while somebody keeps changing this back.")
	for _, f := range d.Fights {
		fmt.Fprintf(&b, "nodegate_watch_fight{name=%s} 1\n", label(f.Name))
	}
	flag := map[bool]int{true: 1}
	for _, m := range []struct {
		name, kind, help string
		value            int64
	}{
		{"nodegate_watch_fights", "gauge", "How many fights there are.", int64(len(d.Fights))},
		{"nodegate_watch_links_set_total", "counter", "Links that were set when they appeared.", int64(d.Links)},
		{"nodegate_watch_link_events_total", "counter", "Notices about links that the kernel sent.", int64(d.LinkEvents)},
		{"nodegate_watch_resyncs_total", "counter", "Times that notices were missed and every link was looked at again.", int64(d.Resyncs)},
		{"nodegate_watch_rounds_total", "counter", "Times that everything was looked at.", int64(d.Rounds)},
		{"nodegate_watch_off", "gauge", "1 while somebody has switched nodegate off: nothing is corrected.", int64(flag[d.Off != ""])},
		{"nodegate_watch_policy_error", "gauge", "1 while the policy cannot be read and the last good one is in use.", int64(flag[d.PolicyError != ""])},
		{"nodegate_watch_start_timestamp_seconds", "gauge", "When watch was started.", d.Since.Unix()},
		{"nodegate_watch_interval_seconds", "gauge", "How often everything is looked at.", int64(d.Interval / time.Second)},
	} {
		metric(m.name, m.kind, m.help)
		fmt.Fprintf(&b, "%s %d\n", m.name, m.value)
	}
	_, err := io.WriteString(out, b.String())
	return err
}
