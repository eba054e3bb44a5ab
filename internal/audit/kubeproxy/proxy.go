package kubeproxy

import (
	"bytes"
	"cmp"
	"context"
	"time"

	"nodegate/internal/audit/proxy"
)

// The addresses of kube-proxy's pages, unless its configuration sets others.
const (
	defaultHealthz = "http://127.0.0.1:10256/healthz"
	defaultMetrics = "http://127.0.0.1:10249/metrics"
)

// Get reads a page: Page, or its stand-in in tests.
type Get func(ctx context.Context, address string) (body []byte, status int, err error)

func (g Get) read(ctx context.Context, address string) (body []byte, status int, err error) {
	if g == nil {
		g = Page
	}
	return g(ctx, address)
}

// Answers is the result of reading kube-proxy's pages.
type Answers struct {
	Findings []proxy.Finding
	Health   bool // one of them could be read
	Metrics  Metrics
}

// Ask reads healthz and metrics: on a node at the usual addresses, if none is known. It leaves out a source that cannot be read and calls
// leftOut with the reason.
func (p *Presence) Ask(ctx context.Context, leftOut func(error)) (a Answers) {
	healthz, metrics := p.Healthz, p.Metrics
	if p.Host != nil {
		healthz, metrics = cmp.Or(healthz, defaultHealthz), cmp.Or(metrics, defaultMetrics)
	}
	read := func(address string, judge func(body []byte, status int) ([]proxy.Finding, error)) {
		if address == "" {
			return
		}
		body, status, err := p.Get.read(ctx, address)
		if err != nil {
			leftOut(err)
			return
		}
		found, err := judge(body, status)
		if a.Health = a.Health || err == nil; err != nil {
			found = []proxy.Finding{UnreadableAnswer(address, err)}
		}
		a.Findings = append(a.Findings, found...)
	}
	read(healthz, func(body []byte, status int) ([]proxy.Finding, error) {
		h, err := ParseHealth(body, status)
		return JudgeHealth(h), err
	})
	read(metrics, func(body []byte, _ int) (found []proxy.Finding, err error) {
		a.Metrics, err = ParseMetrics(bytes.NewReader(body))
		a.Metrics.clockSet = p.ClockSet()
		return JudgeMetrics(a.Metrics, time.Now()), err
	})
	return a
}
