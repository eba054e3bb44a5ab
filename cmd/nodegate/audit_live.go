package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"nodegate/cmd/nodegate/internal/audit"
	"nodegate/cmd/nodegate/internal/audit/settle"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host"
	"nodegate/internal/input"
	"nodegate/internal/kube"
	"nodegate/internal/proxyrules"
	"nodegate/internal/ruleset"
)

// auditRun is one run of `nodegate audit`.
type auditRun struct {
	*auditOptions
	host      *host.Host
	stderr    io.Writer
	began     time.Time
	rep       proxyrules.Judgment
	covered   report.Covered
	converged []settle.Converged
}

// auditFiles judges recorded rules, once.
func (a *auditRun) auditFiles(ctx context.Context, stdin io.Reader) error {
	var sets []*ruleset.Set
	for _, name := range a.rules {
		set, err := parseRules(name, stdin)
		if err != nil {
			return fmt.Errorf("reading rules: %w", err)
		}
		sets = append(sets, set)
	}
	judged := proxyrules.Options{NodeName: a.node, Zone: a.zone}
	if err := a.truth.Read(ctx, &judged); err != nil {
		return err
	}
	a.rep = proxyrules.Judge(sets, judged)
	a.covered.Endpoints, a.covered.Services = judged.Endpoints != nil, judged.Services != nil
	kube.Unproven(a.rep.Findings)
	a.addProxyFindings(kube.AskProxy(ctx, a.proxy, a.reportSkipped))
	return nil
}

// auditLive judges this node's rules, and follows the differences from the API.
func (a *auditRun) auditLive(ctx context.Context) error {
	a.proxy.Live, a.covered.Live = true, true
	api, err := a.truth.Server()
	if err != nil {
		return err
	}
	if api != nil && api.Unverified() {
		fmt.Fprintf(a.stderr, "nodegate: warning: %s sets insecure-skip-tls-verify: an attacker on the network can forge "+
			"the API server's answers\n", a.truth.Kubeconfig)
	}
	opts := proxyrules.Options{NodeName: a.node, Zone: a.zone}
	var versions *proxyrules.Versions
	var unanswered error
	if api == nil {
		err = a.truth.Read(ctx, &opts)
	} else if versions, unanswered = api.List(ctx, false); unanswered == nil {
		opts.Endpoints, opts.Services = versions.Endpoints, versions.Services
	}
	if err != nil {
		return err
	}
	n := audit.NewMachine(a.host)
	n.Presence.Healthz, n.Presence.Metrics = a.proxy.Healthz, a.proxy.Metrics
	a.covered.Endpoints, a.covered.Services = opts.Endpoints != nil, opts.Services != nil
	stale := false
	if a.once || api == nil && opts.Endpoints != nil {
		err = a.auditOnce(ctx, n, opts)
	} else {
		stale, err = a.follow(ctx, n, api, versions)
	}
	if err != nil {
		return errors.Join(input.ErrUnknown, err)
	}
	if unanswered != nil {
		a.rep.Findings = append(a.rep.Findings, kube.Unanswered(unanswered))
	}
	a.proxy.Healthz, a.proxy.Metrics, a.proxy.Silent = n.Presence.Healthz, n.Presence.Metrics, kube.Silent(a.rep.Findings)
	asked := n.Ask(ctx, a.proxy, a.reportSkipped)
	a.addProxyFindings(asked)
	if a.rep.Mode != "" && !asked.Health && !a.proxy.Silent {
		a.rep.Findings = append(a.rep.Findings, kube.UnreadableAnswer("kube-proxy", errors.New("neither healthz nor metrics answered")))
	}
	if f, ok := kube.DeadWatch(&a.rep, asked.Findings); ok && asked.Health && stale {
		a.rep.Findings = append(a.rep.Findings, f)
	}
	kube.Conclude(a.rep.Findings, asked, time.Now())
	if versions != nil && a.rep.Mode != "" {
		kube.Agreed(a.rep.Findings)
	}
	kube.RestartAll(a.host, a.rep.Findings)
	return nil
}

// auditOnce reads the rules and compares them with the API once.
func (a *auditRun) auditOnce(ctx context.Context, n *audit.Machine, opts proxyrules.Options) (err error) {
	if a.rep, err = n.Rules(ctx); err != nil {
		return err
	}
	found := proxyrules.Compare(&a.rep, opts)
	kube.Unproven(found)
	if a.rep.Mode != "" {
		found = append(found, n.Proxy(ctx)...)
	}
	a.rep.Conclude(append(a.rep.Findings, found...))
	return nil
}

// follow judges the rules once they have settled. stale reports whether a difference from the API has persisted.
func (a *auditRun) follow(ctx context.Context, n *audit.Machine, api *kube.API, versions *proxyrules.Versions) (stale bool, err error) {
	opts := settle.Options{Settle: a.settle, Node: a.node, Zone: a.zone, Progress: report.Following(a.stderr)}
	if opts.Settle == 0 {
		opts.Settle = kube.SettleTime(a.host, kube.UsualSettle)
	}
	flows := make(chan []proxyrules.Finding, 1)
	go func() {
		if versions == nil {
			flows <- nil
			return
		}
		flows <- n.Flows(ctx, api, versions, opts.Settle)
	}()
	out, err := settle.Run(ctx, n, api, versions, opts)
	a.rep, a.converged = out.Report, out.Converged
	a.rep.Conclude(append(a.rep.Findings, <-flows...))
	return out.Stale, err
}

// addProxyFindings adds the findings from kube-proxy's own pages and log.
func (a *auditRun) addProxyFindings(asked kube.Proxy) {
	a.rep.Findings = append(a.rep.Findings, asked.Findings...)
	a.covered.Health, a.covered.Log = asked.Health, asked.Log
}

func (a *auditRun) reportSkipped(err error) { fmt.Fprintf(a.stderr, "nodegate: skipped: %v\n", err) }
