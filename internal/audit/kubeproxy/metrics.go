package kubeproxy

import (
	"errors"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"nodegate/internal/audit/proxy"
	"nodegate/internal/input"
	"nodegate/internal/ruleset"
)

// Metrics are kube-proxy's own metrics about writing rules, from :10249/metrics, by address family:
// "IPv4", "IPv6", or "" before 1.33, which has one set for both.
type Metrics struct {
	Families map[string]SyncMetrics `json:"families"`
	Requests Requests               `json:"requests"`
	clockSet time.Time              // ages of earlier times count from then on, because they cannot be compared with the clock
}

// SyncMetrics are the metrics of one address family.
type SyncMetrics struct {
	LastSync, LastQueued time.Time // zero: never
	Failures             float64
}

// Of returns the metrics of a family, "ip" or "ip6", and whether there are any.
func (m Metrics) Of(family string) (SyncMetrics, bool) {
	f, known := m.Families[map[string]string{ruleset.IPv4: "IPv4", ruleset.IPv6: "IPv6"}[family]]
	if !known {
		f, known = m.Families[""]
	}
	return f, known
}

// Wrote reports whether kube-proxy has written the rules of a family, "ip" or "ip6", since it started. This is known if the metrics name
// that family alone and are not zero: kube-proxy exports them only for the families that it serves.
func (m Metrics) Wrote(family string) (wrote, known bool) {
	f := m.Families[map[string]string{ruleset.IPv4: "IPv4", ruleset.IPv6: "IPv6"}[family]]
	return !f.LastSync.IsZero(), !f.LastSync.IsZero() || !f.LastQueued.IsZero()
}

// Failures counts the failed writes of rules since kube-proxy's start.
func (m Metrics) Failures() (n float64) {
	for _, f := range m.Families {
		n += f.Failures
	}
	return n
}

// Intervals of kube-proxy.
const (
	syncTimeout = time.Minute             // an update waits at most this long: 2 x syncPeriod
	fullSync    = time.Hour + time.Minute // the rules are written at least this often, with slack
)

// ParseMetrics reads the Prometheus text of :10249/metrics and keeps only the metrics about writing rules. Since 1.33 these are missing
// before the first sync.
func ParseMetrics(r io.Reader) (Metrics, error) {
	m := Metrics{Families: map[string]SyncMetrics{}}
	in, own, synced := input.NewLines(r), false, false
	for {
		line, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Metrics{}, err
		}
		m.Requests.add(line)
		own = own || strings.HasPrefix(line, "kubeproxy_")
		synced = synced || strings.HasPrefix(line, "kubeproxy_sync_proxy_rules_last_")
		if rest, ok := strings.CutPrefix(line, "kubeproxy_sync_proxy_rules_"); ok && !m.parseLine(rest) {
			return Metrics{}, input.Unreadable(in.N, "metric without a number")
		}
	}
	if len(m.Families) == 0 && own && !synced {
		m.Families[""] = SyncMetrics{}
	} else if len(m.Families) == 0 {
		return Metrics{}, input.Unknown(0, "none of kube-proxy's metrics about writing rules found")
	}
	return m, nil
}

// parseLine reads `last_timestamp_seconds{ip_family="IPv4"} 1.7e+09`. It returns false for a metric that is not a number.
func (m *Metrics) parseLine(s string) bool {
	name, value, _ := strings.Cut(s, " ")
	name, labels, _ := strings.Cut(name, "{")
	family := strings.TrimSuffix(strings.TrimPrefix(labels, `ip_family="`), `"}`)
	f := m.Families[family]
	set := map[string]func(v float64){
		"last_timestamp_seconds":                  func(v float64) { f.LastSync = unixTime(v) },
		"last_queued_timestamp_seconds":           func(v float64) { f.LastQueued = unixTime(v) },
		"iptables_restore_failures_total":         func(v float64) { f.Failures += v },
		"iptables_partial_restore_failures_total": func(v float64) { f.Failures += v },
		"nftables_sync_failures_total":            func(v float64) { f.Failures += v },
	}[name]
	if set == nil || family != "" && family != "IPv4" && family != "IPv6" {
		return true // another metric, or another program's
	}
	v, err := strconv.ParseFloat(value, 64)
	if err != nil || math.IsNaN(v) || math.Abs(v) > 1e12 {
		return false
	}
	set(v)
	m.Families[family] = f
	return true
}

func unixTime(seconds float64) time.Time {
	if seconds <= 0 {
		return time.Time{}
	}
	whole, part := math.Modf(seconds)
	return time.Unix(int64(whole), int64(part*1e9))
}

// JudgeMetrics judges the metrics: an update that is pending for more than a minute cannot be written; a loop that has not run for an
// hour is dead. A dead watch shows in neither (kubernetes#87615).
func JudgeMetrics(m Metrics, now time.Time) []proxy.Finding {
	out := proxy.NewCollector()
	for _, name := range slices.Sorted(maps.Keys(m.Families)) {
		f := m.Families[name]
		of := ""
		if name != "" {
			of = " for " + name
		}
		now := now.Add(-max(0, m.clockSet.Sub(later(f.LastSync, f.LastQueued))))
		if !f.LastSync.IsZero() && f.LastQueued.After(m.clockSet) {
			f.LastSync = later(f.LastSync, m.clockSet)
		}
		switch {
		case f.LastSync.IsZero() && f.LastQueued.IsZero():
			out.Addf("kubeproxy.sync.never", "kube-proxy has not written its rules%s since it started", of)
			continue
		case f.LastSync.IsZero() && now.Sub(f.LastQueued) <= syncTimeout:
			continue // just started
		case f.LastQueued.After(f.LastSync) && now.Sub(f.LastQueued) > syncTimeout:
			out.Addf("kubeproxy.sync.stuck",
				"an update%s has been pending for %s; the rules were last written %s ago", of, age(now, f.LastQueued), age(now, f.LastSync))
			continue // failures are a consequence
		case now.Sub(f.LastSync) > fullSync:
			out.Addf("kubeproxy.sync.dead",
				"the rules%s were last written %s ago; kube-proxy writes them at least once an hour", of, age(now, f.LastSync))
			continue
		}
		if f.Failures > 0 {
			out.Addf("kubeproxy.sync.restore-failures", "writing rules%s has failed %.0f times since kube-proxy started", of, f.Failures)
		}
	}
	return out.List
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

func age(now, then time.Time) string {
	if then.IsZero() {
		return "an unknown time"
	}
	return now.Sub(then).Round(time.Second).String()
}
