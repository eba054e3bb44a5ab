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
	Began   time.Time // start of kube-proxy's process: earlier lines belong to another one; zero if unknown
}

// isOld reports whether the log certainly lacks a recent line of this process.
func (of Log) isOld() bool {
	return !of.Written.IsZero() && (of.Written.Before(of.Now.Add(-watchFresh)) || of.Written.Before(of.Began))
}

// JudgeLog searches kube-proxy's log (the journal, a container's log file or
// /var/log/kube-proxy.log) for lists and watches of the API that keep failing: `Failed to list
// *v1.Service` is the only trace that a dead watch leaves. Times without a zone are in the host's
// zone or, from a container, in UTC; the end of the log shows which. If it does not, such times
// cause no failure.
func JudgeLog(r io.Reader, of Log) ([]proxy.Finding, error) {
	in := input.NewLines(r)
	in.Zeros = true
	readings := []*reading{{zone: time.UTC}}
	if _, offset := of.Now.Zone(); offset != 0 {
		readings = append(readings, &reading{zone: of.Now.Location()})
	}
	for {
		line, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		at, zoned, kind := lineTime(line), false, failedKind(line)
		if at.IsZero() {
			at, zoned = klogTime(line), true
		}
		for _, r := range readings {
			r.setTime(at, zoned, of.Now)
			if kind != "" {
				r.addFailure(kind, line, in.N, of)
			}
		}
	}
	if of.isOld() {
		return nil, nil
	}
	readings = possibleReadings(readings, of)
	on, undated := 0, 0
	w := readings[0]
	for _, r := range readings {
		if r.isFailing(of.Now) {
			w = r
			on++
		}
		undated = max(undated, r.undated)
	}
	slices.Sort(w.kinds)
	count, doubt := w.count, ""
	switch {
	case on == len(readings):
	case on > 0:
		doubt = ", if its times are in UTC, which is unknown"
		if w.zone != time.UTC {
			doubt = ", if its times are in the host's zone, which is unknown"
		}
	case undated >= 3:
		count, doubt = undated, "; their times are unknown"
	default:
		return nil, nil
	}
	msg := fmt.Sprintf("kube-proxy's log has %d failures to list or watch %s", count, strings.Join(w.kinds, ", "))
	if on > 0 {
		msg += fmt.Sprintf(", from %s to %s ago, without a gap", age(of.Now, w.first), age(of.Now, w.last))
	}
	f := proxy.NewFinding(proxy.Finding{Name: watchFailing, Line: w.number, Rule: config.PlainMessage(w.text), Message: msg + doubt})
	if doubt != "" {
		f.Verdict = verdict.Unknown
		f.Remedy = "read the end of the log: if the last failure is older than three minutes, the problem is over; otherwise: " + f.Remedy
	}
	return []proxy.Finding{f}, nil
}

const watchFailing = "kubeproxy.watch.failing"

// IsFailingWatch reports whether a finding is about lists or watches of the API that keep failing.
func IsFailingWatch(f proxy.Finding) bool { return f.Name == watchFailing }

// reading is the log with its times interpreted in one zone.
type reading struct {
	zone        *time.Location
	newest      time.Time // the time of the last line; zero if no line had a time
	count       int       // failures of this process in the newest episode
	first, last time.Time // of that episode
	undated     int       // failures whose times are unknown
	kinds       []string
	number      int    // line number of the last failure
	text        string // its text
}

// setTime takes the time of a line, which also applies to the following lines without a time.
// zoned: at is in the reading's zone.
func (r *reading) setTime(at time.Time, zoned bool, now time.Time) {
	switch {
	case at.IsZero():
		return
	case zoned:
		at = time.Date(now.In(r.zone).Year(), at.Month(), at.Day(), at.Hour(), at.Minute(), at.Second(), 0, r.zone)
		if at.After(now.Add(24 * time.Hour)) { // December's log read in January
			at = at.AddDate(-1, 0, 0)
		}
	}
	r.newest = at
}

func (r *reading) addFailure(kind, line string, n int, of Log) {
	switch at := r.newest; {
	case at.IsZero(), at.After(of.Now.Add(clockSlack)):
		r.undated++
	case at.Before(of.Began):
		return
	default:
		if r.first.IsZero() || at.Sub(r.last) > watchGap {
			r.first, r.count, r.kinds = at, 0, nil
		}
		r.last = at
		r.count++
	}
	if len(r.kinds) < 8 && !slices.Contains(r.kinds, kind) {
		r.kinds = append(r.kinds, strings.Clone(kind))
	}
	r.number, r.text = n, strings.Clone(line[:min(len(line), 400)])
}

func (r *reading) isFailing(now time.Time) bool {
	return r.count >= 3 && now.Sub(r.last) <= watchFresh && r.last.Sub(r.first) >= watchSpan
}

// possibleReadings removes the readings in which the log would have lines later than its last
// write. A reading whose last line was written at just that time is preferred.
func possibleReadings(readings []*reading, of Log) []*reading {
	const near = 2 * time.Minute
	written := of.Written
	if written.IsZero() {
		written = of.Now
	}
	var ahead, exact []*reading
	for _, r := range readings {
		switch d := written.Sub(r.newest); {
		case d < -clockSlack:
			ahead = append(ahead, r)
		case d <= near && !of.Written.IsZero():
			exact = append(exact, r)
		}
	}
	if len(exact) > 0 {
		return exact
	}
	if len(ahead) == len(readings) {
		return readings
	}
	return slices.DeleteFunc(readings, func(r *reading) bool { return slices.Contains(ahead, r) })
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

// klogTime returns klog's own timestamp, "E1120 22:56:29.123456", which has neither year nor zone:
// it is returned in the year 2000, a leap year, and in UTC. It returns zero for a line without one.
func klogTime(line string) time.Time {
	const layout = "0102 15:04:05"
	for i := 0; i+1+len(layout) <= len(line) && i < 200; i++ {
		if !strings.ContainsRune("IWEF", rune(line[i])) || line[i+1] < '0' || line[i+1] > '9' {
			continue
		}
		if t, err := time.Parse("2006"+layout, "2000"+line[i+1:i+1+len(layout)]); err == nil {
			return t
		}
	}
	return time.Time{}
}

// DeadWatch draws a conclusion that no single source shows: the rules differ from the API, while
// kube-proxy's own pages (judged by JudgeHealth and JudgeMetrics into own) report no fault. The
// judgment must contain only settled differences: others disappear, and must not lead to the
// restart of a healthy kube-proxy. DeadWatch returns false if there is nothing to conclude.
func DeadWatch(rep *proxy.Judgment, own []proxy.Finding) (proxy.Finding, bool) {
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
