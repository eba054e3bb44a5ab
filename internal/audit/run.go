package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"nodegate/internal/audit/kubeproxy"
	"nodegate/internal/audit/proxy"
	"nodegate/internal/audit/settle"
	"nodegate/internal/host"
	"nodegate/internal/input"
	"nodegate/internal/kube"
	"nodegate/internal/ruleset"
)

// Request describes one audit.
type Request struct {
	Truth    Truth
	Healthz  string // the address of kube-proxy's page; "": the usual one, if a node is audited
	Metrics  string // the same
	Node     string
	Once     bool                            // compare once, without waiting for differences to settle
	Settle   time.Duration                   // 0: as long as kube-proxy needs
	Progress func(open int, d time.Duration) // called after each reading of the rules; may be nil
	Skipped  func(error)                     // called with the reason why a page of kube-proxy was not read
	Warn     func(string)                    // prints a warning for the operator
}

// Result is the result of one audit.
type Result struct {
	Report    proxy.Judgment
	Covered   Covered
	Converged int // Service ports that differed from the API, but agree now
}

// Covered records which inputs the audit could compare the rules with.
type Covered struct{ Live, Endpoints, Services, Health bool }

// Run audits the node of h once: it reads the rules, follows their differences from the API until
// they have settled, queries kube-proxy, and concludes from all.
func Run(ctx context.Context, h *host.Host, r Request) (Result, error) {
	api, err := r.Truth.Server()
	if err != nil {
		return Result{}, err
	}
	if api != nil && api.Unverified() {
		r.Warn(unverified(r.Truth.Kubeconfig))
	}
	n := NewMachine(h)
	n.Presence.Healthz, n.Presence.Metrics, n.skipped = r.Healthz, r.Metrics, r.Skipped
	n.node = r.Node
	if api == nil {
		return n.run(ctx, nil, r)
	}
	return n.run(ctx, api, r)
}

func (n *Machine) run(ctx context.Context, api settle.API, r Request) (Result, error) {
	n.node = r.Node
	opts := proxy.Options{NodeName: r.Node}
	var versions *proxy.Versions
	var err error
	if api == nil {
		err = r.Truth.readFiles(&opts)
	} else if versions, n.unanswered = api.List(ctx, false); n.unanswered == nil {
		opts.Endpoints, opts.Services = versions.Endpoints, versions.Services
	} else {
		n.Presence.Answered = time.Now
	}
	if err != nil {
		return Result{}, err
	}
	res := Result{Covered: Covered{Live: true, Endpoints: opts.Endpoints != nil, Services: opts.Services != nil}}
	var out settle.Outcome
	if r.Once || api == nil && opts.Services != nil {
		out, err = n.compareOnce(ctx, opts, versions != nil)
	} else {
		if r.Settle == 0 {
			r.Settle = kubeproxy.SettleTime(n.Host, kubeproxy.UsualSettle)
		}
		out, err = settle.Run(ctx, n, api, versions, settle.Options{Settle: r.Settle, Node: r.Node, Progress: r.Progress})
	}
	if err != nil {
		return Result{}, errors.Join(input.ErrUnknown, err)
	}
	res.Report, res.Converged = out.Report, out.Converged
	res.Covered.Health = n.asked.Health
	return res, nil
}

// FollowRequest describes an audit by Follow.
type FollowRequest struct {
	Kubeconfig    string // "": kube-proxy's own, or a Pod's service account
	Plugins       *kube.Plugins
	Node          string
	Every, Settle time.Duration
	Warn          func(string)          // prints a warning for the operator
	Looked, Done  func(settle.Progress) // as in settle.FollowOptions
}

// Follow audits the node of h like Run, for as long as the context lasts.
func Follow(ctx context.Context, h *host.Host, r FollowRequest) {
	NewMachine(h).follow(ctx, &server{host: h, kubeconfig: r.Kubeconfig, warn: r.Warn, plugins: r.Plugins}, r)
}

func (n *Machine) follow(ctx context.Context, api settle.API, r FollowRequest) {
	n.follows, n.node = true, r.Node
	settle.Follow(ctx, n, api, settle.FollowOptions{Node: r.Node, Every: r.Every, Done: r.Done, Looked: r.Looked,
		Answers: func(since func() time.Time) { n.Presence.Answered = since },
		Settle: func() time.Duration {
			return max(kubeproxy.SettleTime(n.Host, r.Settle), time.Until(n.Presence.Counts().Add(kubeproxy.Reconnects)))
		}})
}

// compareOnce reads the rules and compares them with the API once.
func (n *Machine) compareOnce(ctx context.Context, opts proxy.Options, compared bool) (out settle.Outcome, err error) {
	if out.Report, err = n.Rules(ctx); err != nil {
		return out, err
	}
	opts.Live = n.live
	found := proxy.Compare(&out.Report, opts)
	kubeproxy.Unproven(found)
	if out.Report.Mode != "" {
		found = append(found, n.Proxy(ctx)...)
	}
	out.Report.Conclude(append(out.Report.Findings, found...))
	n.Conclude(ctx, &out, compared)
	return out, nil
}

// RunRecorded audits recorded rules. Of kube-proxy it reads only the pages that the request names.
func RunRecorded(ctx context.Context, sets []*ruleset.Set, r Request) (Result, error) {
	opts := proxy.Options{NodeName: r.Node}
	opts.Pasted = true
	if err := r.Truth.readFiles(&opts); err != nil {
		return Result{}, err
	}
	api, err := r.Truth.Server()
	if err != nil {
		return Result{}, err
	}
	var unanswered error
	if api != nil {
		var v *proxy.Versions
		if v, unanswered = api.List(ctx, false); unanswered == nil {
			opts.Endpoints, opts.Services = v.Endpoints, v.Services
		}
	}
	res := Result{Report: proxy.Judge(sets, opts)}
	if res.Report.Mode == "iptables" || res.Report.Mode == "nftables" {
		res.Report.Notes = append(res.Report.Notes, untried(errors.New("packets are sent on the node only")))
	}
	if unanswered != nil {
		res.Report.Findings = append(res.Report.Findings, kubeproxy.Unanswered(unanswered))
	}
	kubeproxy.Unproven(res.Report.Findings)
	asked := (&kubeproxy.Presence{Healthz: r.Healthz, Metrics: r.Metrics}).Ask(ctx, r.Skipped)
	res.Report.Findings = append(res.Report.Findings, asked.Findings...)
	res.Covered = Covered{Endpoints: opts.Endpoints != nil, Services: opts.Services != nil, Health: asked.Health}
	return res, nil
}

// Conclude queries kube-proxy itself, unless its process is known not to respond, and concludes from
// its answers and the report what neither shows alone.
func (n *Machine) Conclude(ctx context.Context, out *settle.Outcome, compared bool) {
	rep := &out.Report
	n.judgeWays(ctx, rep)
	if n.unanswered != nil {
		rep.Findings = append(rep.Findings, kubeproxy.Unanswered(n.unanswered))
	}
	skipped := n.skipped
	if skipped == nil {
		skipped = func(err error) { rep.Notes = append(rep.Notes, fmt.Sprintf("not read: %v", err)) }
	}
	silent := kubeproxy.Silent(rep.Findings)
	if n.asked = (kubeproxy.Answers{}); !silent {
		n.asked = n.Ask(ctx, skipped)
	}
	n.asked.Findings = append(n.asked.Findings, n.Presence.JudgeRequests(n.asked.Metrics)...)
	if n.follows {
		n.forgetFailures()
	}
	rep.Findings = append(rep.Findings, n.asked.Findings...)
	if rep.Mode != "" && !n.asked.Health && !silent {
		rep.Findings = append(rep.Findings, kubeproxy.UnreadableAnswer("kube-proxy",
			errors.New("neither healthz nor metrics answered; kube-proxy may just have been restarted")))
	}
	if f, ok := kubeproxy.DeadWatch(rep, n.asked, time.Now()); ok && n.asked.Health && out.Stale {
		rep.Findings = append(rep.Findings, f)
	}
	kubeproxy.Conclude(rep.Findings)
	if compared && rep.Mode != "" {
		kubeproxy.Agreed(rep.Findings)
	}
	kubeproxy.RestartAll(n.Host, n.node, rep.Findings)
}

// forgetFailures drops the warning about failed writes of rules unless more have failed since the
// last round: the metrics count them until kube-proxy restarts.
func (n *Machine) forgetFailures() {
	before := n.failures
	if len(n.asked.Metrics.Families) > 0 {
		n.failures = n.asked.Metrics.Failures()
	}
	if before >= 0 && n.failures > before {
		return
	}
	n.asked.Findings = slices.DeleteFunc(n.asked.Findings, func(f proxy.Finding) bool {
		return f.Name == "kubeproxy.sync.restore-failures"
	})
}
