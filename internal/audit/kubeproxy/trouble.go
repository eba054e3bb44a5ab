package kubeproxy

import (
	"context"
	"time"

	"nodegate/internal/audit/proxy"
)

// requestsEvery is the interval of reading the metrics, about 150 kB, unless requests have begun to fail.
const requestsEvery = 5 * time.Minute

// Trouble looks at kube-proxy at so little cost that it can be repeated every 30 s: at its process, at its health page, and at the end of
// its log. A finding is a reason to audit, and not yet a result. logs are kube-proxy's; nil means the usual places.
func (p *Presence) Trouble(ctx context.Context, logs []string) []proxy.Finding {
	found := append(p.Look(ctx), p.health...)
	asked := Answers{}
	of := Log{Now: time.Now(), Began: later(p.began(p.process), p.Counts())}
	unreadable := func(error) {} // the audit reports that
	if logs == nil {
		logs = usualLogs()
	}
	for _, name := range logs {
		asked.readLog(name, of, unreadable)
	}
	if p.process.PID != 0 && (of.Now.Sub(p.requests.read) >= requestsEvery || !p.requests.since.IsZero()) {
		m, _ := p.Figures(ctx)
		found = append(found, p.JudgeRequests(m)...)
	}
	return append(found, asked.Findings...)
}

// JudgeRequests compares the counts of requests with earlier readings.
func (p *Presence) JudgeRequests(m Metrics) []proxy.Finding {
	return p.requests.judge(m.Requests, time.Now(), p.Counts())
}
