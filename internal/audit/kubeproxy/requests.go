package kubeproxy

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"nodegate/internal/audit/proxy"
)

const (
	watchFailing = "kubeproxy.watch.failing"
	watchSpan    = time.Minute // failures within a shorter time do not count
)

// Requests counts kube-proxy's requests to the API since its start, from rest_client_requests_total
// of its metrics. A watch counts when it begins.
type Requests struct {
	Answered float64 `json:"answered"` // with any HTTP status below 400
	Failed   float64 `json:"failed"`   // without an answer, or with an error
}

// add adds one line of the metrics.
func (r *Requests) add(line string) {
	rest, ok := strings.CutPrefix(line, "rest_client_requests_total{")
	if !ok {
		return
	}
	labels, value, _ := strings.Cut(rest, "} ")
	_, code, _ := strings.Cut(labels, `code="`)
	n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	switch {
	case err != nil || n < 0 || n > 1e12:
	case strings.HasPrefix(code, "2"), strings.HasPrefix(code, "3"):
		r.Answered += n
	default:
		r.Failed += n
	}
}

// Reconnects bounds the time in which a healthy kube-proxy reconnects after an outage of the API server: its pauses grow to 30 s, with
// jitter to a minute (defaultBackoffMax in client-go's tools/cache/reflector.go).
const Reconnects = time.Minute

// requestsSeen is what readings of Requests have shown so far. client-go logs nothing while the API server refuses its connections
// (IsConnectionRefused in watch of tools/cache/reflector.go), so only these counts show that the watch fails.
type requestsSeen struct {
	last   Requests
	read   time.Time // when that was read; zero: never
	since  time.Time // the first reading with failures and without an answer since the reading before; zero: none
	failed float64   // how many had failed then
}

// judge takes a reading; readings before counts are forgotten. It returns the finding that kube-proxy's requests keep failing: for over a
// minute without any answer.
func (s *requestsSeen) judge(r Requests, now, counts time.Time) []proxy.Finding {
	first := s.read.IsZero() || s.read.Before(counts)
	switch {
	case r == Requests{}: // not in the metrics
		*s = requestsSeen{read: now}
		return nil
	case first, r.Answered != s.last.Answered, r.Failed < s.last.Failed: // answered, or another process
		*s = requestsSeen{last: r, read: now}
		return nil
	case s.since.IsZero() && r.Failed > s.last.Failed:
		s.since, s.failed = now, r.Failed
	}
	s.last, s.read = r, now
	more := r.Failed - s.failed
	if s.since.IsZero() || now.Sub(s.since) < watchSpan || more < 3 {
		return nil
	}
	return []proxy.Finding{proxy.NewFinding(proxy.Finding{Name: watchFailing, Message: fmt.Sprintf("kube-proxy's metrics "+
		"count %.0f failed requests to the API in %s, and none that was answered", more, age(now, s.since))})}
}

// requestsEvery is the interval of reading the metrics, about 150 kB, unless requests have begun to fail.
const requestsEvery = time.Minute

// Trouble looks at kube-proxy at so little cost that it can be repeated every 30 s: at its process, its health page, and its failed
// requests. A finding is a reason to audit, and not yet a result.
func (p *Presence) Trouble(ctx context.Context) []proxy.Finding {
	found := append(p.Look(ctx), p.health...)
	if p.process.PID != 0 && (time.Since(p.requests.read) >= requestsEvery || !p.requests.since.IsZero()) {
		m, _ := p.Figures(ctx)
		found = append(found, p.JudgeRequests(m)...)
	}
	return found
}

// JudgeRequests compares the counts of requests with earlier readings.
func (p *Presence) JudgeRequests(m Metrics) []proxy.Finding {
	return p.requests.judge(m.Requests, time.Now(), p.Counts())
}
