package watch

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/hashicorp/hcl/v2"

	"nodegate/checks"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/audit"
	"nodegate/internal/host"
	"nodegate/internal/kube"
	"nodegate/internal/verdict"
	"nodegate/policy"
)

// auditName is the name of the audit's result among the checks of nodegate watch.
const auditName = "kubeproxy.audit"

// Auditor audits in the background as the current policy requires.
type Auditor struct {
	ctx     context.Context
	host    *host.Host
	changed func()       // called if a round has a different result than the previous round
	warn    func(string) // prints a warning for the operator
	plugins *kube.Plugins

	mu    sync.Mutex
	asked policy.Audit
	stop  context.CancelFunc
	began time.Time
	seen  time.Time // time of the last look
	kept  audit.Progress

	summary string // of kept, when the last look ended
}

// NewAuditor returns an auditor of h that ends with ctx. It does nothing until Checks is called.
func NewAuditor(ctx context.Context, h *host.Host, changed func(), warn func(string)) *Auditor {
	return &Auditor{ctx: ctx, host: h, changed: changed, warn: warn, plugins: kube.NewPlugins(host.Credential), stop: func() {}}
}

// Checks starts, continues or stops the audit as the policy requires. It returns the result of the
// last round as a check, or nil if the policy lacks an audit block.
func (a *Auditor) Checks(p *policy.Policy) []checks.Check {
	asks := p.Audit
	asks.Range = hcl.Range{}
	a.mu.Lock()
	defer a.mu.Unlock()
	if asks != a.asked {
		a.stop()
		a.stop, a.asked, a.kept, a.began = func() {}, asks, audit.Progress{}, time.Now()
		a.summary = auditCheck{asks: asks}.summarise()
		if asks.On {
			ctx, cancel := context.WithCancel(a.ctx)
			a.stop = cancel
			go a.followRules(ctx, asks)
		}
	}
	if !asks.On {
		return nil
	}
	return []checks.Check{auditCheck{asks: p.Audit, kept: a.kept, began: a.began, seen: a.seen}}
}

func (a *Auditor) followRules(ctx context.Context, asks policy.Audit) {
	looked := func(k audit.Progress) {
		a.mu.Lock()
		if ctx.Err() != nil { // another policy is in use
			a.mu.Unlock()
			return
		}
		before := a.summary
		a.kept, a.seen, a.summary = k, time.Now(), auditCheck{asks: asks, kept: k}.summarise()
		now := a.summary
		a.mu.Unlock()
		if now != before {
			a.changed()
		}
	}
	done := func(k audit.Progress) {
		looked(k)
		if k.Services > manyPorts {
			debug.FreeOSMemory() // most of the rules in memory are garbage now, ten times the remainder
		}
	}
	audit.Follow(ctx, a.host, audit.FollowRequest{Kubeconfig: asks.Kubeconfig, Plugins: a.plugins, Node: asks.Node,
		Every: asks.Every, Settle: asks.Settle, Warn: a.warn, Looked: looked, Done: done})
}

// Document returns the report of the audit, or nil without an audit.
func (a *Auditor) Document() *report.Auditing {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.asked.On {
		return nil
	}
	return report.NewAuditing(a.kept)
}

// manyPorts is a number of Service ports whose rules take tens of MB.
const manyPorts = 1000

// auditCheck presents the last audit as a check.
type auditCheck struct {
	asks  policy.Audit
	kept  audit.Progress
	began time.Time
	seen  time.Time
}

// silence is added to Every: if no look ends within that time, the audit is reported as hanging. Looks are 30 s apart, but a round
// may take minutes.
const silence = 5 * time.Minute

func (v auditCheck) Name() string { return auditName }

func (v auditCheck) Metadata() policy.Metadata {
	m := policy.Metadata{
		Severity: v.asks.Severity, Range: v.asks.Range, Drift: policy.Report,
		Reason: "kube-proxy's rules on this node agree with the API, and kube-proxy runs",
		Ref:    "https://github.com/kubernetes/kubernetes/issues/87615",
	}
	if _, worst, _ := v.conclude(); worst == verdict.Warn {
		m.Severity = policy.Warn
	}
	return m
}

// conclude returns the state of the check with its evidence, its verdict, and the reason for that.
func (v auditCheck) conclude() (checks.State, verdict.Verdict, audit.Finding) {
	k := v.kept
	s := checks.Passing(fmt.Sprintf("the rules of %s agree with the API", report.Count(k.Services, "Service port")))
	report.AddFindings(&s, k.Findings, func(f audit.Finding) checks.Evidence {
		return checks.Seen(f.Name, servicePrefix(f)+f.Describe())
	})
	for _, note := range k.Notes {
		s.Evidence = append(s.Evidence, checks.Seen("note", note))
	}
	worst, reason := audit.Conclude(k, time.Now())
	return s, worst, reason
}

// summarise summarises the findings without the details that differ between rounds.
func (v auditCheck) summarise() string {
	_, worst, _ := v.conclude()
	s := worst.String()
	for _, f := range v.kept.Findings {
		s += fmt.Sprint("\n", f.Name, f.Service, f.Family)
	}
	return s
}

func (v auditCheck) Inspect(context.Context, *host.Host) (checks.State, error) {
	k := v.kept
	s, worst, reason := v.conclude()
	switch {
	case k.Rounds == 0:
		return s, fmt.Errorf("no audit has finished since %s", v.began.UTC().Format(time.TimeOnly))
	case time.Since(v.seen) > v.asks.Every+silence:
		return s, fmt.Errorf("the audit has hung since %s: a file or program that it reads does not answer; "+
			"find processes in state D: `ps -eo pid,stat,wchan,args`", v.seen.UTC().Format(time.TimeOnly))
	case worst == verdict.Pass:
		return s, nil
	case worst == verdict.Unknown && k.Unread != nil:
		return s, k.Unread
	case worst == verdict.Unknown && k.Unanswered != nil:
		return s, fmt.Errorf("the rules were not compared with the API: %w", k.Unanswered)
	case worst == verdict.Unknown && audit.Outdated(k, time.Now()):
		return s, fmt.Errorf("the rules were last compared with the API %s ago; rules or API have changed since, %s ago",
			time.Since(k.Audited).Round(time.Second), time.Since(k.Waiting).Round(time.Second))
	}
	got := servicePrefix(reason) + reason.Describe()
	if more := len(k.Findings) - 1; more > 0 {
		got += fmt.Sprintf(" (and %s)", report.Count(more, "other finding"))
	}
	if worst == verdict.Unknown {
		return s, errors.New(got)
	}
	s.Differs(got, reason.Remedy)
	return s, nil
}

// servicePrefix returns the Service of a finding, followed by ": ".
func servicePrefix(f audit.Finding) string {
	if f.Service == "" {
		return ""
	}
	return f.Service + ": "
}
