package kube

import (
	"errors"
	"fmt"
	"io"
	"nodegate/checks"
	"nodegate/internal/proxyrules"
	"slices"
	"strings"
	"time"

	"nodegate/internal/input"
)

const (
	watchSpan  = time.Minute      // failures over less than this are a hiccup
	watchFresh = 10 * time.Minute // a failure older than this is over: client-go tries again within a minute
)

// JudgeLog reads kube-proxy's log (from the journal, a container's log file or /var/log/kube-proxy.log) for lists and watches of
// the API that fail and go on failing: `Failed to list *v1.Service` is the one trace that a dead watch leaves. Times without a
// zone are read in that of now.
func JudgeLog(r io.Reader, now time.Time) ([]proxyrules.Finding, error) {
	in := input.NewLines(r)
	in.Zeros = true
	var w watchFailures
	for {
		line, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if kind := failedKind(line); kind != "" {
			w.add(kind, line, in.N, logTime(line, now))
		}
	}
	out := proxyrules.NewCollector()
	if w.count >= 3 && (w.last.IsZero() || now.Sub(w.last) <= watchFresh && w.last.Sub(w.first) >= watchSpan) {
		slices.Sort(w.kinds)
		msg := fmt.Sprintf("kube-proxy's log has %d failures to list or watch %s", w.count, strings.Join(w.kinds, ", "))
		if !w.last.IsZero() {
			msg += fmt.Sprintf(", from %s to %s ago: it still goes on, and the rules stay as they were when it began", age(now, w.first),
				age(now, w.last))
		}
		out.Add(proxyrules.Finding{Name: "kubeproxy.watch.failing", Line: w.line, Rule: w.text, Message: msg})
	}
	return out.List, nil
}

type watchFailures struct {
	count       int
	kinds       []string
	first, last time.Time
	line        int
	text        string // of the last
}

func (w *watchFailures) add(kind, line string, n int, at time.Time) {
	w.count++
	if len(w.kinds) < 8 {
		if !slices.Contains(w.kinds, kind) {
			w.kinds = append(w.kinds, strings.Clone(kind))
		}
	}
	if !at.IsZero() {
		if w.first.IsZero() {
			w.first = at
		}
		w.last = at
	}
	w.line, w.text = n, strings.Clone(line[:min(len(line), 400)])
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

// logTime finds when a line was written: the container runtime's own time stamp, or klog's "E1120 22:56:29.123456", which names
// no year. Zero if there is none.
func logTime(line string, now time.Time) time.Time {
	if word, _, ok := strings.Cut(line, " "); ok {
		if t, err := time.Parse(time.RFC3339Nano, word); err == nil {
			return t
		}
	}
	const klog = "0102 15:04:05"
	for i := 0; i+1+len(klog) <= len(line) && i < 200; i++ {
		switch line[i] {
		case 'I', 'W', 'E', 'F':
		default:
			continue
		}
		t, err := time.ParseInLocation("2006"+klog, fmt.Sprint(now.Year())+line[i+1:i+1+len(klog)], now.Location())
		if err != nil {
			continue
		}
		if t.After(now.Add(24 * time.Hour)) { // December's log read in January
			t = t.AddDate(-1, 0, 0)
		}
		return t
	}
	return time.Time{}
}

// DeadWatch concludes what no single source shows: the rules differ from the API, while kube-proxy's own endpoints (judged by
// JudgeHealth and JudgeMetrics into own) report nothing wrong. Only differences that have settled may be in the report: others
// pass, and nobody may be told to restart a healthy kube-proxy for them. It returns false when there is nothing to conclude.
func DeadWatch(rep *proxyrules.Report, own []proxyrules.Finding) (proxyrules.Finding, bool) {
	services := map[string]bool{}
	for i := range rep.Findings {
		if f := &rep.Findings[i]; strings.HasPrefix(f.Name, "kubeproxy.truth.") && f.Verdict == checks.Fail {
			services[f.Family+" "+f.Service] = true
		}
	}
	for i := range own {
		switch own[i].Name {
		case "kubeproxy.sync.stuck", "kubeproxy.sync.dead", "kubeproxy.sync.never", "kubeproxy.sync.unhealthy",
			"kubeproxy.sync.unreadable", "kubeproxy.watch.failing", "kubeproxy.process.absent", "kubeproxy.process.stopped",
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
