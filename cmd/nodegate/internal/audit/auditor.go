package audit

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/hashicorp/hcl/v2"

	"nodegate/checks"
	"nodegate/cmd/nodegate/internal/audit/settle"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host"
	"nodegate/internal/kube"
	"nodegate/internal/proxyrules"
	"nodegate/internal/verdict"
	"nodegate/policy"
)

// name is the audit's verdict among those of nodegate watch.
const name = "kubeproxy.audit"

// Auditor audits in the background, as the policy in use asks.
type Auditor struct {
	ctx     context.Context
	host    *host.Host
	changed func()       // a round has found something else than the one before
	warn    func(string) // what a person should know
	plugins *kube.Plugins

	mu    sync.Mutex
	asked policy.Audit
	stop  context.CancelFunc
	began time.Time
	seen  time.Time // when it last looked
	kept  settle.Progress
}

// New returns an auditor of h that ends with ctx. It does nothing before Checks.
func New(ctx context.Context, h *host.Host, changed func(), warn func(string)) *Auditor {
	return &Auditor{ctx: ctx, host: h, changed: changed, warn: warn, plugins: kube.NewPlugins(host.Credential), stop: func() {}}
}

// Checks starts, goes on with or ends what a policy asks for. It returns the verdict of the last round as a check, none
// where the policy asks for nothing.
func (a *Auditor) Checks(p *policy.Policy) []checks.Check {
	asks := p.Audit
	asks.Range = hcl.Range{}
	a.mu.Lock()
	defer a.mu.Unlock()
	if asks != a.asked {
		a.stop()
		a.stop, a.asked, a.kept, a.began = func() {}, asks, settle.Progress{}, time.Now()
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
	settle.Follow(ctx, NewMachine(a.host), &server{host: a.host, asks: asks, warn: a.warn, plugins: a.plugins}, settle.FollowOptions{
		Node: asks.Node, Zone: asks.Zone, Every: asks.Every,
		Settle: func() time.Duration { return kube.SettleTime(a.host, asks.Settle) },
		Looked: func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			if ctx.Err() == nil {
				a.seen = time.Now()
			}
		},
		Done: func(k settle.Progress) {
			a.mu.Lock()
			if ctx.Err() != nil { // another policy is in use
				a.mu.Unlock()
				return
			}
			before := auditCheck{asks: asks, kept: a.kept}.text()
			a.kept, a.seen = k, time.Now()
			a.mu.Unlock()
			if now := (auditCheck{asks: asks, kept: k}).text(); now != before {
				a.changed()
			}
			if k.Services > many {
				debug.FreeOSMemory() // the rules that were read are garbage now, ten times what stays
			}
		},
	})
}

// Document returns what is known of the audit, nil where there is none.
func (a *Auditor) Document() *report.Auditing {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.asked.On {
		return nil
	}
	return report.NewAuditing(a.kept)
}

// many ports of Services have rules of tens of MB.
const many = 1000

// firstRound is how long the first round may take before its verdict is missed.
const firstRound = 2 * time.Minute

// auditCheck is the last audit as a check.
type auditCheck struct {
	asks  policy.Audit
	kept  settle.Progress
	began time.Time
	seen  time.Time
}

// silence is how long after the last look another one is missed, beside three times every: a round may take minutes, and is rested
// from for twice every.
const silence = 5 * time.Minute

func (v auditCheck) Name() string { return name }

func (v auditCheck) Metadata() policy.Metadata {
	m := policy.Metadata{
		Severity: v.asks.Severity, Range: v.asks.Range, Drift: policy.Report,
		Reason: "kube-proxy's rules on this node agree with the API, and kube-proxy is there",
		Ref:    "https://github.com/kubernetes/kubernetes/issues/87615",
	}
	if v.worst() == verdict.Warn {
		m.Severity = policy.Warn
	}
	return m
}

// worst returns the verdict on the findings: what breaks traffic, then what could not be told, then what only warns.
func (v auditCheck) worst() verdict.Verdict {
	worst := verdict.Pass
	for _, f := range v.kept.Findings {
		switch {
		case f.Verdict == verdict.Fail:
			return verdict.Fail
		case f.Verdict == verdict.Unknown:
			worst = verdict.Unknown
		case f.Verdict == verdict.Warn && worst == verdict.Pass:
			worst = verdict.Warn
		}
	}
	if worst != verdict.Fail && (v.kept.Unread != nil || v.kept.Unanswered != nil) {
		return verdict.Unknown
	}
	return worst
}

// text says what was found without what changes from round to round.
func (v auditCheck) text() string {
	s := v.worst().String()
	for _, f := range v.kept.Findings {
		s += fmt.Sprint("\n", f.Name, f.Service, f.Family)
	}
	return s
}

func (v auditCheck) Inspect(context.Context, *host.Host) (checks.State, error) {
	k := v.kept
	s := checks.Passing(fmt.Sprintf("the rules of %s agree with the API", report.Count(k.Services, "Service port")))
	for i, f := range k.Findings {
		if i < 20 {
			s.Evidence = append(s.Evidence, checks.Seen(f.Name, subject(f)+f.Describe()))
		}
	}
	for _, note := range k.Notes {
		s.Evidence = append(s.Evidence, checks.Seen("note", note))
	}
	worst := v.worst()
	switch {
	case k.Rounds == 0 && time.Since(v.began) < firstRound:
		s.Skip = "the first audit has not ended"
		return s, nil
	case k.Rounds == 0:
		return s, fmt.Errorf("no audit has ended since %s", v.began.UTC().Format(time.TimeOnly))
	case time.Since(v.seen) > 3*v.asks.Every+silence:
		return s, fmt.Errorf("nothing has been looked at since %s: a file or a program that the audit reads does not answer; "+
			"see what state D says: ps -eo pid,stat,wchan,args", v.seen.UTC().Format(time.TimeOnly))
	case worst == verdict.Pass:
		return s, nil
	case worst == verdict.Unknown && k.Unread != nil:
		return s, k.Unread
	case worst == verdict.Unknown && k.Unanswered != nil:
		return s, fmt.Errorf("the rules are compared with nothing: %w", k.Unanswered)
	}
	for _, f := range k.Findings {
		if f.Verdict != worst {
			continue
		}
		got := subject(f) + f.Describe()
		if more := len(k.Findings) - 1; more > 0 {
			got += fmt.Sprintf(" (and %s)", report.Count(more, "other finding"))
		}
		if worst == verdict.Unknown {
			return s, errors.New(got)
		}
		s.Differs(got, f.Remedy)
		break
	}
	return s, nil
}

// subject returns the Service that a finding is about, and ": ".
func subject(f proxyrules.Finding) string {
	if f.Service == "" {
		return ""
	}
	return f.Service + ": "
}
