package kube

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"nodegate/internal/proxyrules"
	"nodegate/internal/verdict"
)

// Conclude adds to each difference from the API what kube-proxy says of itself, and gives it the remedy of its cause where
// that is known: a kube-proxy that is not there, or does not run, is not restarted.
func Conclude(findings []proxyrules.Finding, asked Proxy, now time.Time) {
	cause := slices.IndexFunc(findings, func(f proxyrules.Finding) bool { return strings.HasPrefix(f.Name, "kubeproxy.process.") })
	for i := range findings {
		f := &findings[i]
		if !strings.HasPrefix(f.Name, "kubeproxy.truth.") {
			continue
		}
		if words := asked.Metrics.words(now); words != "" {
			f.Message += "; kube-proxy says: " + words
		}
		if cause >= 0 {
			f.Remedy = findings[cause].Remedy
		}
	}
}

// Agreed doubts failures of kube-proxy's lists and watches where its rules have just been what the API has: the API may have come back
// since the last one, and nobody may be told to restart a kube-proxy that catches up by itself.
func Agreed(findings []proxyrules.Finding) {
	if slices.ContainsFunc(findings, func(f proxyrules.Finding) bool { return strings.HasPrefix(f.Name, "kubeproxy.truth.") }) {
		return
	}
	for i := range findings {
		if f := &findings[i]; f.Name == watchFailing && f.Verdict == verdict.Fail {
			f.Verdict, f.Remedy = verdict.Unknown, "look again after three minutes. Only if it still goes on: "+f.Remedy
			f.Message += "; yet the rules are what the API has: nothing has changed since, or it is over"
		}
	}
}

// words says when the rules were last written, and whether a change waits.
func (m Metrics) words(now time.Time) string {
	var parts []string
	for _, family := range slices.Sorted(maps.Keys(m.Families)) {
		f := m.Families[family]
		text := "rules never written"
		if !f.LastSync.IsZero() {
			text = "rules written " + age(now, f.LastSync) + " ago"
		}
		if f.LastQueued.After(f.LastSync) {
			text += ", a change pending for " + age(now, f.LastQueued)
		} else {
			text += ", no change pending"
		}
		if family != "" {
			text = fmt.Sprintf("%s (%s)", text, family)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

// Unproven gives every difference from the API that was seen once a remedy that begins with looking again.
func Unproven(findings []proxyrules.Finding) {
	for i := range findings {
		if f := &findings[i]; strings.HasPrefix(f.Name, "kubeproxy.truth.") || strings.HasPrefix(f.Name, "kubeproxy.healthport.") {
			f.Remedy = "look again first: one look may come before kube-proxy has written, and `nodegate audit` with the API follows " +
				"what it sees until that is certain. Only if it stays so: " + f.Remedy
		}
	}
}

// Unanswered is the finding for an API server that could not be read: nothing is known of the rules.
func Unanswered(err error) proxyrules.Finding {
	out := proxyrules.NewCollector()
	out.Addf("kubeproxy.truth.unanswered", "%v", err)
	return out.List[0]
}
