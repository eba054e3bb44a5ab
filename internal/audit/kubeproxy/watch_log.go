package kubeproxy

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"nodegate/internal/audit/proxy"
	"nodegate/internal/host/config"
	"nodegate/internal/input"
	"nodegate/internal/verdict"
)

const (
	watchSpan = time.Minute // failures within a shorter time do not count
	// watchFresh: a failure older than this is over. client-go retries in less than a minute
	// (defaultBackoffMax and its jitter in tools/cache/reflector.go) and then waits for a response.
	watchFresh = 3 * time.Minute
	// watchGap ends an episode: client-go tries again within a minute, and a request without an answer ends after 45 s (the HTTP/2
	// ping). A longer gap between two failures means that a request was answered.
	watchGap = 2 * time.Minute
)

// Log has the facts about a log that its lines do not contain.
type Log struct {
	Now     time.Time // in the host's zone
	Written time.Time // the last write; zero if unknown
	Began   time.Time // earlier lines do not count: they are another process's, or the API server answered nobody; zero if unknown
}

// isOld reports whether the log certainly lacks a recent line of this process.
func (of Log) isOld() bool {
	return !of.Written.IsZero() && (of.Written.Before(of.Now.Add(-watchFresh)) || of.Written.Before(of.Began))
}

// JudgeLog searches kube-proxy's log for lists and watches of the API that keep failing. `Failed to list *v1.Service` has the reason, which
// no page of kube-proxy has. klog writes times without a zone, so the last one of the log is as old as its last write.
func JudgeLog(r io.Reader, of Log) ([]proxy.Finding, error) {
	in := input.NewLines(r)
	in.Zeros = true
	var newest, first, last time.Time // in the log; first and last failure without a longer gap
	f, count := proxy.Finding{Name: watchFailing}, 0
	for {
		line, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if m := logTime.FindStringSubmatch(line); m != nil {
			at, err := time.Parse("2006-01-02T15:04:05", m[1])
			if err != nil {
				at, _ = time.Parse("2006 0102 15:04:05", "2000 "+m[2]) // a leap year
			}
			if at.Before(newest.AddDate(0, 0, -1)) {
				at = at.AddDate(1, 0, 0) // klog has no year
			}
			newest = at
		}
		if !failed.MatchString(line) {
			continue
		}
		if newest.Sub(last) > watchGap {
			first, count = newest, 0
		}
		last, count = newest, count+1
		f.Line, f.Rule = in.N, config.PlainMessage(line[:min(len(line), 400)])
	}
	if count < 3 || of.isOld() {
		return nil, nil
	}
	if last.IsZero() || of.Written.IsZero() {
		f.Message = fmt.Sprintf("kube-proxy's log has %d failures to list or watch the API; their times are unknown", count)
		f = proxy.NewFinding(f)
		f.Verdict = verdict.Unknown
		f.Remedy = "read the end of the log: if the last failure is older than three minutes, the problem is over; otherwise: " + f.Remedy
		return []proxy.Finding{f}, nil
	}
	shift := of.Written.Sub(newest)
	first, last = later(first.Add(shift), of.Began), last.Add(shift)
	if of.Now.Sub(last) > watchFresh || last.Sub(first) < watchSpan {
		return nil, nil
	}
	f.Message = fmt.Sprintf("kube-proxy's log has %d failures to list or watch the API, from %s to %s ago, without a gap", count,
		age(of.Now, first), age(of.Now, last))
	return []proxy.Finding{proxy.NewFinding(f)}, nil
}

const watchFailing = "kubeproxy.watch.failing"

// IsFailingWatch reports whether a finding is about lists or watches of the API that keep failing.
func IsFailingWatch(f proxy.Finding) bool { return f.Name == watchFailing }

// failed matches what could not be listed or watched.
var failed = regexp.MustCompile(`ailed to (?:list|watch) (\*v1\w*\.(?:Service|EndpointSlice|Endpoints|Node|ServiceCIDR))\b`)

// logTime matches the time that the container runtime writes before a line, or klog's, which has neither year nor zone:
// "E1120 22:56:29.123456".
var logTime = regexp.MustCompile(`^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)|^.{0,200}?[IWEF](\d{4} \d\d:\d\d:\d\d)`)

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
