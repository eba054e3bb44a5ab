package kubeproxy

import (
	"errors"
	"fmt"
	"io"
	"slices"
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
	watchGap   = 2 * time.Minute
	clockSlack = time.Minute // a time less than this in the future counts as now
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

// JudgeLog searches kube-proxy's log (the journal, a container's log file or
// /var/log/kube-proxy.log) for lists and watches of the API that keep failing: `Failed to list
// *v1.Service` is the only trace that a dead watch leaves. Times without a zone are read as UTC, the
// zone of containers. On a host with another zone they cause a failure only if the last of them agrees with the last write of the log.
func JudgeLog(r io.Reader, of Log) ([]proxy.Finding, error) {
	in := input.NewLines(r)
	in.Zeros = true
	var e episode
	for {
		line, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if at := lineTime(line); !at.IsZero() {
			e.newest, e.zoned = at, true
		} else if at := klogTime(line, of.Now); !at.IsZero() && !e.zoned {
			e.newest = at
		}
		if kind := failedKind(line); kind != "" {
			e.addFailure(kind, line, in.N, of)
		}
	}
	dated := e.isDated(of)
	switch {
	case of.isOld(), dated && !e.isFailing(of.Now) && e.undated < 3, !dated && e.all < 3:
		return nil, nil
	}
	slices.Sort(e.kinds)
	f := proxy.Finding{Name: watchFailing, Line: e.number, Rule: config.PlainMessage(e.text)}
	said := func(count int) string {
		return fmt.Sprintf("kube-proxy's log has %d failures to list or watch %s", count, strings.Join(e.kinds, ", "))
	}
	if dated && e.isFailing(of.Now) {
		f.Message = fmt.Sprintf("%s, from %s to %s ago, without a gap", said(e.count), age(of.Now, e.first), age(of.Now, e.last))
		return []proxy.Finding{proxy.NewFinding(f)}, nil
	}
	f.Message = said(e.all) + "; their times are unknown"
	f = proxy.NewFinding(f)
	f.Verdict = verdict.Unknown
	f.Remedy = "read the end of the log: if the last failure is older than three minutes, the problem is over; otherwise: " + f.Remedy
	return []proxy.Finding{f}, nil
}

const watchFailing = "kubeproxy.watch.failing"

// IsFailingWatch reports whether a finding is about lists or watches of the API that keep failing.
func IsFailingWatch(f proxy.Finding) bool { return f.Name == watchFailing }

// episode is the log's part about one failure.
type episode struct {
	newest      time.Time // the time of the last line; zero if no line had a time
	zoned       bool      // a line had a time with its zone
	count       int       // failures of this process in the newest episode
	first, last time.Time // of that episode
	undated     int       // failures whose times are unknown
	all         int       // failures, also of earlier processes
	kinds       []string
	number      int    // line number of the last failure
	text        string // its text
}

func (e *episode) addFailure(kind, line string, n int, of Log) {
	e.all++
	switch at := e.newest; {
	case at.IsZero(), at.After(of.Now.Add(clockSlack)):
		e.undated++
	case at.Before(of.Began):
		return
	default:
		if e.first.IsZero() || at.Sub(e.last) > watchGap {
			e.first, e.count, e.kinds = at, 0, nil
		}
		e.last = at
		e.count++
	}
	if len(e.kinds) < 8 && !slices.Contains(e.kinds, kind) {
		e.kinds = append(e.kinds, strings.Clone(kind))
	}
	e.number, e.text = n, strings.Clone(line[:min(len(line), 400)])
}

// isDated reports whether the times of the log are known: they have a zone, the host's zone is UTC too, or the last time read as UTC is the
// time of the last write.
func (e *episode) isDated(of Log) bool {
	const near = 2 * time.Minute
	_, offset := of.Now.Zone()
	return e.zoned || offset == 0 || e.newest.IsZero() || !of.Written.IsZero() && of.Written.Sub(e.newest).Abs() <= near
}

func (e *episode) isFailing(now time.Time) bool {
	return e.count >= 3 && now.Sub(e.last) <= watchFresh && e.last.Sub(e.first) >= watchSpan
}

// failedKind returns the kind that could not be listed or watched: "*v1.Service".
func failedKind(line string) string {
	for _, what := range []string{"ailed to list ", "ailed to watch "} {
		_, rest, ok := strings.Cut(line, what)
		if !ok || !strings.HasPrefix(rest, "*v1") {
			continue
		}
		end := strings.IndexFunc(rest[1:], func(r rune) bool {
			return r != '.' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
		})
		if end < 0 {
			end = len(rest) - 1
		}
		switch kind := rest[:end+1]; kind[strings.IndexByte(kind, '.')+1:] {
		case "Service", "EndpointSlice", "Endpoints", "Node", "ServiceCIDR":
			return kind
		}
	}
	return ""
}

// lineTime returns the timestamp at the start of a line: the container runtime's, or journalctl's,
// which lacks the colon in the zone with systemd 252. It returns zero for a line without one.
func lineTime(line string) time.Time {
	word, _, _ := strings.Cut(line, " ")
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05-0700"} {
		if t, err := time.Parse(layout, word); err == nil {
			return t
		}
	}
	return time.Time{}
}

// klogTime returns klog's own timestamp, "E1120 22:56:29.123456", which has neither year nor zone: it is returned as UTC. It returns zero
// for a line without one.
func klogTime(line string, now time.Time) time.Time {
	const layout = "0102 15:04:05"
	for i := 0; i+1+len(layout) <= len(line) && i < 200; i++ {
		if !strings.ContainsRune("IWEF", rune(line[i])) || line[i+1] < '0' || line[i+1] > '9' {
			continue
		}
		if t, err := time.Parse("2006"+layout, "2000"+line[i+1:i+1+len(layout)]); err == nil { // a leap year
			t = t.AddDate(now.UTC().Year()-2000, 0, 0)
			if t.After(now.Add(24 * time.Hour)) { // December's log read in January
				t = t.AddDate(-1, 0, 0)
			}
			return t
		}
	}
	return time.Time{}
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
