package kubeproxy

import (
	"fmt"
	"slices"
	"strings"
	"time"

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

// DeadWatch draws a conclusion that no single source shows: the rules differ from the API, while kube-proxy's own pages (judged by
// JudgeHealth and JudgeMetrics into own) report no fault. The judgment must contain only settled differences: others disappear, and must
// not lead to the restart of a healthy kube-proxy. Neither does a kube-proxy that has written rules or received a change within the last
// minute. DeadWatch returns false if there is nothing to conclude.
func DeadWatch(rep *proxy.Judgment, asked Answers, now time.Time) (proxy.Finding, bool) {
	own := asked.Findings
	for _, f := range asked.Metrics.Families {
		if now.Sub(f.LastSync) < time.Minute || now.Sub(f.LastQueued) < time.Minute {
			return proxy.Finding{}, false
		}
	}
	services := map[string]bool{}
	for i := range rep.Findings {
		if f := &rep.Findings[i]; strings.HasPrefix(f.Name, "kubeproxy.truth.") && f.Verdict == verdict.Fail {
			services[f.Family+" "+f.Service] = true
		}
	}
	for i := range own {
		switch own[i].Name {
		case "kubeproxy.sync.stuck", "kubeproxy.sync.dead", "kubeproxy.sync.never", "kubeproxy.sync.unhealthy",
			"kubeproxy.sync.unreadable", watchFailing, "kubeproxy.process.absent", "kubeproxy.process.stopped",
			"kubeproxy.process.hung":
			return proxy.Finding{}, false // that is the cause
		}
	}
	if len(services) == 0 {
		return proxy.Finding{}, false
	}
	return proxy.NewFinding(proxy.Finding{Name: "kubeproxy.watch.dead", Message: fmt.Sprintf("this node's rules of %d Service "+
		"ports do not match the API, yet kube-proxy reports itself healthy: "+
		"either it has not received the changes (its watch is dead: it queues nothing then, healthz stays 200, and the hourly resync writes the "+
		"old rules again with a new timestamp), or another program has changed its rules. Until it is restarted, other changes "+
		"may be missing here too", len(services))}), true
}
