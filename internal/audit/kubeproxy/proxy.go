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

// Pages are the addresses of kube-proxy's pages. On the running node, empty fields mean the usual addresses.
type Pages struct {
	Live             bool
	Silent           bool      // kube-proxy is known not to respond
	Healthz, Metrics string    // URLs
	ClockSet         time.Time // when the clock was last set; zero if unknown
	Get              Get       // nil means Page
}

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

// Ask reads healthz and metrics. It leaves out a source that cannot be read and calls leftOut with the reason.
func Ask(ctx context.Context, from Pages, leftOut func(error)) Answers {
	var p Answers
	switch {
	case from.Silent:
		from.Healthz, from.Metrics = "", ""
	case from.Live:
		from.Healthz, from.Metrics = cmp.Or(from.Healthz, defaultHealthz), cmp.Or(from.Metrics, defaultMetrics)
	}
	if from.Healthz != "" {
		if body, status, err := from.Get.read(ctx, from.Healthz); err != nil {
			leftOut(err)
		} else if h, err := ParseHealth(body, status); err != nil {
			p.Findings = append(p.Findings, UnreadableAnswer(from.Healthz, err))
		} else {
			p.Health = true
			p.Findings = append(p.Findings, JudgeHealth(h)...)
		}
	}
	if from.Metrics != "" {
		if body, _, err := from.Get.read(ctx, from.Metrics); err != nil {
			leftOut(err)
		} else if m, err := ParseMetrics(bytes.NewReader(body)); err != nil {
			p.Findings = append(p.Findings, UnreadableAnswer(from.Metrics, err))
		} else {
			m.clockSet = from.ClockSet
			p.Health, p.Metrics = true, m
			p.Findings = append(p.Findings, JudgeMetrics(m, time.Now())...)
		}
	}
	return p
}
