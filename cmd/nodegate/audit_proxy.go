package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"nodegate/checks/kubeproxy"
	"nodegate/internal/host"
	"nodegate/internal/kube"
)

// Where kube-proxy answers, unless its configuration says otherwise.
const (
	defaultHealthz = "http://127.0.0.1:10256/healthz"
	defaultMetrics = "http://127.0.0.1:10249/metrics"
)

// answers is what kube-proxy says of itself, and what of it was to be had.
type answers struct {
	findings    []kubeproxy.Finding
	health, log bool
}

// askProxy asks healthz and metrics and reads the log: all of it on the running
// node, only what is named where the rules come from a file. What does not
// answer is left out, and said so.
func (o *auditOptions) askProxy(ctx context.Context, live bool, stderr io.Writer) answers {
	var a answers
	now := time.Now()
	note := func(err error) { fmt.Fprintf(stderr, "nodegate: left out: %v\n", err) }
	healthz, metrics, logs := o.healthz, o.metrics, o.logs
	if live && healthz == "" {
		healthz = defaultHealthz
	}
	if live && metrics == "" {
		metrics = defaultMetrics
	}
	if healthz != "" {
		if body, status, err := kube.Page(ctx, healthz); err != nil {
			note(err)
		} else if h, err := kubeproxy.ParseHealth(body, status); err != nil {
			a.findings = append(a.findings, kubeproxy.UnreadableAnswer(healthz, err))
		} else {
			a.health = true
			a.findings = append(a.findings, kubeproxy.JudgeHealth(h, now)...)
		}
	}
	if metrics != "" {
		if body, _, err := kube.Page(ctx, metrics); err != nil {
			note(err)
		} else if m, err := kubeproxy.ParseMetrics(bytes.NewReader(body)); err != nil {
			a.findings = append(a.findings, kubeproxy.UnreadableAnswer(metrics, err))
		} else {
			a.health = true
			a.findings = append(a.findings, kubeproxy.JudgeMetrics(m, now)...)
		}
	}
	if live && len(logs) == 0 {
		logs = usualLogs()
		if len(logs) == 0 {
			a.readJournal(ctx, now, note)
		}
	}
	for _, name := range logs {
		a.readLog(name, now, note)
	}
	return a
}

// usualLogs is where kube-proxy's log is when it runs as a static Pod of kops,
// or as a DaemonSet.
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

// logTail is how much of the end of a log is read: hours of a quiet proxy, and
// minutes of one that fails all the time, which is what counts.
const logTail = 4 << 20

func (a *answers) readLog(name string, now time.Time, note func(error)) {
	f, err := os.Open(name)
	if err != nil {
		note(err)
		return
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() && info.Size() > logTail {
		if _, err := f.Seek(-logTail, io.SeekEnd); err != nil {
			note(err)
			return
		}
	}
	a.judgeLog(name, io.LimitReader(f, logTail), now, note)
}

func (a *answers) readJournal(ctx context.Context, now time.Time, note func(error)) {
	err := host.Journal(ctx, "kube-proxy.service", func(r io.Reader) error {
		a.judgeLog("the journal of kube-proxy.service", io.LimitReader(r, logTail), now, note)
		return nil
	})
	if err != nil {
		note(err)
	}
}

func (a *answers) judgeLog(name string, r io.Reader, now time.Time, note func(error)) {
	found, err := kubeproxy.JudgeLog(r, now)
	if err != nil {
		note(fmt.Errorf("%s: %w", name, err))
		return
	}
	a.log = true
	a.findings = append(a.findings, found...)
}
