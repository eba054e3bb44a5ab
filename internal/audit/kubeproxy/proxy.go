package kubeproxy

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"nodegate/internal/audit/proxy"
	"nodegate/internal/host/file"
)

// The addresses of kube-proxy's pages, unless its configuration sets others.
const (
	defaultHealthz = "http://127.0.0.1:10256/healthz"
	defaultMetrics = "http://127.0.0.1:10249/metrics"
)

// Pages are the addresses of kube-proxy's pages and logs. On the running node, empty fields mean the usual addresses.
type Pages struct {
	Live             bool
	Silent           bool   // kube-proxy is known not to respond: only the log is read
	Healthz, Metrics string // URLs
	Logs             []string
	Began            time.Time // start of kube-proxy's process; zero if unknown
	Counts           time.Time // failed requests count from then on; zero: all
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

// Answers is the result of reading kube-proxy's pages and log.
type Answers struct {
	Findings    []proxy.Finding
	Health, Log bool // which of them could be read
	Metrics     Metrics
}

// Ask reads healthz, metrics and the log. It leaves out a source that cannot be read and calls leftOut with the reason.
func Ask(ctx context.Context, from Pages, leftOut func(error)) Answers {
	var p Answers
	now := time.Now()
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
			p.Health, h.clockSet = true, from.ClockSet
			p.Findings = append(p.Findings, JudgeHealth(h, now)...)
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
			p.Findings = append(p.Findings, JudgeMetrics(m, now)...)
		}
	}
	of := Log{Now: now, Began: later(from.Began, from.Counts)}
	if from.Live && len(from.Logs) == 0 {
		from.Logs = usualLogs()
	}
	for _, name := range from.Logs {
		p.readLog(name, of, leftOut)
	}
	return p
}

// usualLogs returns kube-proxy's logs if it runs as a static Pod of kops or as a DaemonSet.
func usualLogs() []string {
	var found []string
	for _, pattern := range []string{"/var/log/kube-proxy.log", "/var/log/containers/kube-proxy-*.log"} {
		names, err := filepath.Glob(pattern)
		if err == nil {
			found = append(found, names...)
		}
	}
	return found
}

// logTail limits how much of the end of a log is read: hours of a quiet kube-proxy, and ten minutes if four watches fail.
const logTail = 64 << 10

// readLog reads the end of a log. It does not read a log without a recent line, which proves nothing.
func (p *Answers) readLog(name string, of Log, leftOut func(error)) {
	f, err := file.OpenInput(name)
	if err != nil {
		leftOut(err)
		return
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
		if of.Written = info.ModTime(); of.isOld() {
			p.Log = true
			return
		}
		if info.Size() > logTail {
			if _, err := f.Seek(-logTail, io.SeekEnd); err != nil {
				leftOut(err)
				return
			}
		}
	}
	found, err := JudgeLog(io.LimitReader(f, logTail), of)
	if err != nil {
		leftOut(fmt.Errorf("%s: %w", name, err))
		return
	}
	p.Log = true
	p.Findings = append(p.Findings, found...)
}
