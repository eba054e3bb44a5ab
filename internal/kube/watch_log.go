package kube

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"nodegate/internal/input"
	"nodegate/internal/proxyrules"
	"nodegate/internal/verdict"
)

const (
	watchSpan = time.Minute // failures over less than this are a hiccup
	// watchFresh: a failure older than this is over. client-go tries again after less than a minute (defaultBackoffMax and its jitter in
	// tools/cache/reflector.go), and then waits for an answer.
	watchFresh = 3 * time.Minute
	clockSlack = time.Minute // a time that lies less far ahead is now
)

// Log is what is known of a log besides its lines.
type Log struct {
	Now     time.Time // in the host's zone
	Written time.Time // the last time; zero: not known
	Began   time.Time // kube-proxy's process: what was before says nothing of it; zero: not known
}

// JudgeLog reads kube-proxy's log (from the journal, a container's log file or /var/log/kube-proxy.log) for lists and watches of
// the API that fail and go on failing: `Failed to list *v1.Service` is the one trace that a dead watch leaves. Times without a
// zone are the host's or, from a container, UTC: which, the log's end tells. Where it does not, nobody is accused by them.
func JudgeLog(r io.Reader, of Log) ([]proxyrules.Finding, error) {
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
			r.line(at, zoned, of.Now)
			if kind != "" {
				r.failed(kind, line, in.N, of)
			}
		}
	}
	if old := of.Now.Add(-watchFresh); !of.Written.IsZero() && (of.Written.Before(old) || of.Written.Before(of.Began)) {
		return nil, nil // no line of it is younger
	}
	readings = possible(readings, of)
	on, undated := 0, 0
	w := readings[0]
	for _, r := range readings {
		if r.goesOn(of.Now) {
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
		doubt = ", if its times are in UTC, which is not known"
		if w.zone != time.UTC {
			doubt = ", if its times are in the host's zone, which is not known"
		}
	case undated >= 3:
		count, doubt = undated, "; when is not known"
	default:
		return nil, nil
	}
	out := proxyrules.NewCollector()
	msg := fmt.Sprintf("kube-proxy's log has %d failures to list or watch %s", count, strings.Join(w.kinds, ", "))
	if on > 0 {
		msg += fmt.Sprintf(", from %s to %s ago: it still goes on, and the rules stay as they were when it began", age(of.Now, w.first),
			age(of.Now, w.last))
	}
	out.Add(proxyrules.Finding{Name: watchFailing, Line: w.number, Rule: w.text, Message: msg + doubt})
	if doubt != "" {
		f := &out.List[0]
		f.Verdict = verdict.Unknown
		f.Remedy = "look at the end of the log: where the last one is older than three minutes, it is over. Else: " + f.Remedy
	}
	return out.List, nil
}

const watchFailing = "kubeproxy.watch.failing"

// reading is a log with its times in one zone.
type reading struct {
	zone        *time.Location
	newest      time.Time // of the line that was read last; zero: none had a time
	count       int       // failures with a time, of this process
	first, last time.Time // of them
	undated     int       // failures of which it is not known when they were
	kinds       []string
	number      int    // of the last one
	text        string // of it
}

// line takes the time of a line, which is the one of those that follow it and have none. zoned: it is a time of the reading's zone.
func (r *reading) line(at time.Time, zoned bool, now time.Time) {
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

func (r *reading) failed(kind, line string, n int, of Log) {
	switch at := r.newest; {
	case at.IsZero(), at.After(of.Now.Add(clockSlack)):
		r.undated++
	case at.Before(of.Began):
		return
	default:
		if r.first.IsZero() {
			r.first = at
		}
		r.last = at
		r.count++
	}
	if len(r.kinds) < 8 && !slices.Contains(r.kinds, kind) {
		r.kinds = append(r.kinds, strings.Clone(kind))
	}
	r.number, r.text = n, strings.Clone(line[:min(len(line), 400)])
}

func (r *reading) goesOn(now time.Time) bool {
	return r.count >= 3 && now.Sub(r.last) <= watchFresh && r.last.Sub(r.first) >= watchSpan
}

// possible leaves out the readings by which a log has lines from after it was last written. Where one ends just then, it is that one.
func possible(readings []*reading, of Log) []*reading {
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

// failedKind returns what could not be listed or watched: "*v1.Service".
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

// lineTime returns the time stamp before a line: of the container runtime, or of journalctl, which writes no colon into the zone in
// systemd 252. Zero if there is none.
func lineTime(line string) time.Time {
	word, _, _ := strings.Cut(line, " ")
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05-0700"} {
		if t, err := time.Parse(layout, word); err == nil {
			return t
		}
	}
	return time.Time{}
}

// klogTime returns klog's own time stamp, "E1120 22:56:29.123456", which names neither year nor zone: here they are 2000, a leap year, and
// UTC. Zero if there is none.
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

// DeadWatch concludes what no single source shows: the rules differ from the API, while kube-proxy's own endpoints (judged by
// JudgeHealth and JudgeMetrics into own) report nothing wrong. Only differences that have settled may be in the report: others
// pass, and nobody may be told to restart a healthy kube-proxy for them. It returns false when there is nothing to conclude.
func DeadWatch(rep *proxyrules.Judgment, own []proxyrules.Finding) (proxyrules.Finding, bool) {
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
			return proxyrules.Finding{}, false // that is the cause
		}
	}
	if len(services) == 0 {
		return proxyrules.Finding{}, false
	}
	out := proxyrules.NewCollector()
	out.Addf("kubeproxy.watch.dead", "this node's rules of %d Service ports are not what the API has, yet kube-proxy reports itself healthy: "+
		"it has not heard of the changes (its watch is dead: it queues nothing then, healthz stays 200, and the hourly resync writes the "+
		"old rules again with a fresh time stamp), or somebody else has changed its rules. Until it is restarted, other changes "+
		"may be missing here too", len(services))
	return out.List[0], true
}
