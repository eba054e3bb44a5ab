package kubeproxy

import (
	"slices"
	"strings"

	"nodegate/internal/audit/proxy"
	"nodegate/internal/verdict"
)

// Conclude replaces the remedy of the differences from the API if their cause is known: a kube-proxy that is absent or stopped cannot
// simply be restarted.
func Conclude(findings []proxy.Finding) {
	cause := slices.IndexFunc(findings, func(f proxy.Finding) bool { return strings.HasPrefix(f.Name, "kubeproxy.process.") })
	for i := range findings {
		if cause >= 0 && strings.HasPrefix(findings[i].Name, "kubeproxy.truth.") {
			findings[i].Remedy = findings[cause].Remedy
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

// Unproven makes the remedy of every difference from the API that was seen only once begin with a second check.
func Unproven(findings []proxy.Finding) {
	for i := range findings {
		if f := &findings[i]; strings.HasPrefix(f.Name, "kubeproxy.truth.") {
			f.Remedy = "check again first: kube-proxy may not have written its rules yet when they were read; `nodegate audit` with " +
				"the API keeps reading until the difference is certain. Only if it persists: " + f.Remedy
		}
	}
}

// Unanswered returns the finding for an API server that could not be read: the state of the rules is unknown.
func Unanswered(err error) proxy.Finding {
	return proxy.NewFinding(proxy.Finding{Name: "kubeproxy.truth.unanswered", Message: err.Error()})
}
