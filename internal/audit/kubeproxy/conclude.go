package kubeproxy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"nodegate/internal/audit/proxy"
	"nodegate/internal/verdict"
)

// Conclude adds kube-proxy's own report to each difference from the API. If the cause is known, it
// also replaces the remedy: a kube-proxy that is absent or stopped cannot simply be restarted.
func Conclude(findings []proxy.Finding, asked Answers, now time.Time) {
	cause := slices.IndexFunc(findings, func(f proxy.Finding) bool { return strings.HasPrefix(f.Name, "kubeproxy.process.") })
	for i := range findings {
		f := &findings[i]
		if !strings.HasPrefix(f.Name, "kubeproxy.truth.") {
			continue
		}
		if words := asked.Metrics.describeSync(now); words != "" {
			f.Message += "; kube-proxy reports: " + words
		}
		if cause >= 0 {
			f.Remedy = findings[cause].Remedy
		}
	}
}

// Agreed turns failures of kube-proxy's lists and watches into unknown if its rules have just matched the API: the API may have recovered
// since the last failure, and a kube-proxy that catches up by itself must not be restarted.
func Agreed(findings []proxy.Finding) {
	if slices.ContainsFunc(findings, func(f proxy.Finding) bool { return strings.HasPrefix(f.Name, "kubeproxy.truth.") }) {
		return
	}
	for i := range findings {
		if f := &findings[i]; f.Name == watchFailing && f.Verdict == verdict.Fail {
			f.Verdict, f.Remedy = verdict.Unknown, "check again after three minutes; only if the failures continue: "+f.Remedy
			f.Message += "; but the rules match the API: either nothing has changed since, or the failures are over"
		}
	}
}

// describeSync describes when the rules were last written, and whether a change is pending.
func (m Metrics) describeSync(now time.Time) string {
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

// Unproven makes the remedy of every difference from the API that was seen only once begin with a second check.
func Unproven(findings []proxy.Finding) {
	for i := range findings {
		if f := &findings[i]; strings.HasPrefix(f.Name, "kubeproxy.truth.") || strings.HasPrefix(f.Name, "kubeproxy.healthport.") {
			f.Remedy = "check again first: kube-proxy may not have written its rules yet when they were read; `nodegate audit` with " +
				"the API keeps reading until the difference is certain. Only if it persists: " + f.Remedy
		}
	}
}

// Unanswered returns the finding for an API server that could not be read: the state of the rules is unknown.
func Unanswered(err error) proxy.Finding {
	return proxy.NewFinding(proxy.Finding{Name: "kubeproxy.truth.unanswered", Message: err.Error()})
}
