// Package gate holds one start of a unit until the node passes, or until the policy's
// budget is used up. It must neither hang nor open by mistake: the unit stays held for
// every outcome except Proven and those that the operator has chosen (GlassBroken,
// Released, Tolerated).
package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host"
	"nodegate/internal/host/activity"
	"nodegate/internal/verdict"
	"nodegate/policy"
)

// Gate is one start of the unit.
type Gate struct {
	Host           *host.Host
	Voice          Voice
	BreakGlassFile string                // the file that turns break-glass on
	Again          func() *policy.Policy // re-evaluates the policy; nil if that fails; may block
	last           string                // the last reported reason; each is reported once
	stuck          activity.Step
	doubt          string       // the error of the last break-glass check
	held           string       // the verb of the reasons; "" means "held"
	words          string       // the last console report written
	Next           string       // the consequence when the budget is used up; "" means that systemd retries
	tested         string       // the report that the image tester has received
	untold         string       // a newer report that the image tester has not accepted
	shipped        <-chan error // the result of the on_held program; nil before it has run
}

// Outcome is the result of one start.
type Outcome int

// The outcomes. The zero value keeps the unit held.
const (
	Held        Outcome = iota
	Unknown             // held, because the verdict is unknown
	Proven              // the node passes
	GlassBroken         // break-glass is in force
	Released            // the budget is used up, and the policy releases the unit
	Tolerated           // the node does not pass, but the policy holds nothing (enforce = "warn")
)

// BreakGlass reports whether break-glass is in force, and logs it. The gate calls it before
// it reads the policy, and while the unit is held.
func (g *Gate) BreakGlass() bool {
	why, err := g.Host.BreakGlass(g.BreakGlassFile)
	if err != nil && err.Error() != g.doubt {
		g.doubt = err.Error()
		g.Voice.say(host.LevelWarning, "nodegate: "+g.doubt+"; break-glass is not in force", nil)
	}
	if why == "" {
		return false
	}
	line := "nodegate: break-glass in force (" + why + "): this node is NOT proven"
	host.Status(line)
	g.Voice.say(host.LevelWarning, line, nil)
	return true
}

// Unreadable reports that the unit is held because the policy cannot be read. Without
// a policy the gate cannot know whether to release the unit.
func (g *Gate) Unreadable(mistake, all string) {
	line := "nodegate: held: the policy cannot be read: " + report.OneLine(mistake)
	host.Status(line)
	g.Voice.say(host.LevelError, line+"; correct the policy, or run `touch "+g.BreakGlassFile+"`", nil)
	if all != "" {
		g.Voice.log(host.LevelError, all, nil)
	}
}

// Run checks until the node passes, and repairs it if the policy sets repair.
func (g *Gate) Run(ctx context.Context, p *policy.Policy) Outcome {
	began := time.Now()
	off, tolerated, kept := false, false, false
	made := recorder{write: report.RecordChange}
	if p.Gate.Enforce == policy.Warn {
		g.held = "would be held"
	}
	r, err := checks.Until(ctx, g.Host, p.Gate, g.list(p), made.record, func(r checks.Outcome, waiting activity.Step) bool {
		whole := waiting.What == ""
		document := g.document(p, r)
		if whole {
			g.writeReport(document, r)
			kept = true
		}
		if !whole || r.Verdict() != verdict.Pass {
			g.explain(r, waiting)
			off = g.BreakGlass()
			tolerated = whole && p.Gate.Enforce == policy.Warn
		}
		if whole && r.Verdict() != verdict.Pass {
			g.tell(p.Gate.OnHeld, document)
			g.leaveWords(document)
		}
		return !off && !tolerated
	})
	if errors.Is(err, checks.ErrBudget) && !kept {
		g.writeReport(g.document(p, r), r)
	}
	defer g.told()
	g.insist()
	waited := time.Since(began).Round(time.Millisecond)
	switch {
	case off:
		return GlassBroken
	case err == nil && r.Verdict() == verdict.Pass:
		g.proven(p.Gate.Unit, len(r.Results), waited)
		return Proven
	case tolerated, errors.Is(err, checks.ErrBudget) && p.Gate.Enforce == policy.Warn:
		g.explain(r, waitingFor(err))
		host.Status("nodegate: NOT proven, nothing is held (enforce is warn)" + g.because())
		g.Voice.say(host.LevelWarning, fmt.Sprintf("nodegate: %s starts after %s although the node is NOT proven (enforce = \"warn\")%s%s",
			p.Gate.Unit, waited, g.because(), g.Voice.losses()), nil)
		return Tolerated
	case !errors.Is(err, checks.ErrBudget):
		// A signal does not decide about the node: systemd is stopping the start.
		g.Voice.log(host.LevelNotice, fmt.Sprintf("nodegate: stopped after %s; %s was held%s", waited, p.Gate.Unit, g.because()), nil)
	case p.Gate.OnTimeout == policy.Release:
		g.explain(r, waitingFor(err))
		host.Status("nodegate: released, NOT proven" + g.because())
		g.Voice.say(host.LevelError, fmt.Sprintf("nodegate: RELEASED %s after %s although the node is NOT proven (on_timeout = "+
			"\"release\")%s%s",
			p.Gate.Unit, waited, g.because(), g.Voice.losses()), nil)
		return Released
	default:
		g.explain(r, waitingFor(err))
		stuck := waitingFor(err).String()
		if stuck != "" {
			stuck = ": " + stuck
		}
		g.Voice.log(host.LevelError, fmt.Sprintf("nodegate: %s stays held after %s%s; %s%s", p.Gate.Unit, waited,
			stuck, cmp.Or(g.Next, "systemd retries"), g.Voice.losses()), nil)
	}
	if r.Verdict() == verdict.Fail {
		return Held
	}
	return Unknown
}

// list returns the requirements of each attempt. While the policy depends on an unknown fact, such as the version of a kubelet that
// was too slow to print it, list re-evaluates the policy.
func (g *Gate) list(p *policy.Policy) func(checks.Outcome) []checks.Check {
	list := catalog.For(p, checks.Boot)
	return func(last checks.Outcome) []checks.Check {
		if slices.ContainsFunc(last.Results, func(r checks.Result) bool { return r.Metadata.Unknown != "" }) {
			if now := g.Again(); now != nil {
				list = catalog.For(now, checks.Boot)
			}
		}
		return list
	}
}

// waitingFor returns the step that an attempt was waiting for when the budget was used up.
func waitingFor(err error) activity.Step {
	var overdue checks.Overdue
	errors.As(err, &overdue)
	return overdue.Step
}

func (g *Gate) because() string {
	if g.last == "" {
		return ""
	}
	return ": " + g.last
}

func (g *Gate) proven(unit string, requirements int, waited time.Duration) {
	line := fmt.Sprintf("nodegate: node proven, %s after %s%s", report.Count(requirements, "requirement"), waited, g.Voice.losses())
	host.Status(line)
	if g.last != "" {
		g.Voice.say(host.LevelNotice, line, nil)
	} else {
		g.Voice.log(host.LevelNotice, line, nil)
	}
	passes := make(chan int, 1)
	g.Voice.leave(func() { passes <- report.CountPass(time.Now(), often) })
	select {
	case n := <-passes:
		if n >= oftenPasses {
			g.Voice.say(host.LevelWarning, fmt.Sprintf("nodegate: the node passed %d times in %s, but %s keeps restarting: "+
				"no check explains why it exits; run `nodegate status` or `journalctl -b -u %s`", n, often, unit, unit), nil)
		}
	default:
	}
}

// A unit that passes the gate this often is in a crash loop.
const (
	oftenPasses = 10
	often       = 2 * time.Minute
)

// document returns the report of one attempt. It is converted at the first call, because that reads the machine's files and
// can hang; leave bounds it if nothing else needs the report.
func (g *Gate) document(p *policy.Policy, r checks.Outcome) func() report.Report {
	return sync.OnceValue(func() report.Report { return report.New(g.Host, p, r) })
}

// writeReport writes the report and the changes to /run for other tools. A failed write does not hold
// the unit: an unprivileged user may be trying the gate.
func (g *Gate) writeReport(document func() report.Report, r checks.Outcome) {
	g.tellTester(document)
	kept := make(chan error, 1)
	g.Voice.leave(func() {
		kept <- report.Leave(report.File, document())
		report.RecordFixed(r)
	})
	report.LogFixed(r, func(line string, fields map[string]string) { g.Voice.log(host.LevelNotice, line, fields) })
	for _, res := range r.Results {
		if res.Fixed && !host.LogsToJournal() {
			g.Voice.log(host.LevelNotice, fmt.Sprintf("nodegate: changed %s: was %s, is %s", res.Name, res.Was, res.State.Got), nil)
		}
	}
	select {
	case err := <-kept:
		if err != nil {
			g.Voice.log(host.LevelWarning, "nodegate: "+err.Error(), nil)
		}
	default:
	}
}

// explain reports why the unit is held: one line for each cause, and only if the
// reason has changed since the last report.
func (g *Gate) explain(r checks.Outcome, waiting activity.Step) {
	if waiting.What != "" {
		line := "nodegate: " + cmp.Or(g.held, "held") + ": " + waiting.String()
		host.Status(line)
		if waiting != g.stuck {
			g.Voice.say(host.LevelError, line, nil)
		}
		g.stuck = waiting
		if g.last == "" { // do not replace the reason of a complete attempt, which is more precise
			g.last = waiting.String()
		}
		return
	}
	causes := report.Blocking(r)
	if len(causes) == 0 || causes[0].Text == g.last {
		return
	}
	g.last = causes[0].Text
	more := ""
	if len(causes) > 1 {
		more = fmt.Sprintf(" (and %d more)", len(causes)-1)
	}
	by := "nodegate: " + cmp.Or(g.held, "held") + " by "
	host.Status(by + g.last + more)
	for _, cause := range causes {
		g.Voice.say(host.LevelError, by+cause.Text, cause.Fields)
	}
}
