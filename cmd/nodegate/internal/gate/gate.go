// Package gate keeps one start of a unit waiting until the node passes, or until
// the policy's budget ends. It must neither hang nor open by mistake: every
// outcome but Proven, and what somebody chose (Off, Released, Tolerated), keeps
// the unit held.
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
	BreakGlassFile string                // the file that switches the gate off
	Again          func() *policy.Policy // evaluates the policy again, nil where it cannot be; it may wait
	last           string                // the reason that was said last: each is said once
	stuck          activity.Step
	doubt          string       // why it cannot be told whether the gate is switched off
	held           string       // how the reasons are said; "" is held
	words          string       // the last words that the console has
	Next           string       // what follows where the budget ends; "" is that systemd tries again
	tested         string       // the report that whoever tests this image has
	untold         string       // the one that was made for them since, and not accepted
	shipped        <-chan error // what became of on_held; nil before it was run
}

// Outcome is how the start ends.
type Outcome int

// The outcomes. The zero value keeps the unit held.
const (
	Held        Outcome = iota
	Unknown             // held, because it could not be told whether the node passes
	Proven              // the node passes
	GlassBroken         // somebody broke the glass
	Released            // the budget ended, and the policy releases
	Tolerated           // the node does not pass, and the policy holds nothing (enforce = "warn")
)

// BreakGlass reports whether somebody broke the glass, and says so: before the
// policy is read, and while the unit is held.
func (g *Gate) BreakGlass() bool {
	why, err := g.Host.BreakGlass(g.BreakGlassFile)
	if err != nil && err.Error() != g.doubt {
		g.doubt = err.Error()
		g.Voice.say(host.LevelWarning, "nodegate: "+g.doubt+"; the gate is not switched off", nil)
	}
	if why == "" {
		return false
	}
	line := "nodegate: gate is switched off by " + why + ": this node is NOT proven"
	host.Status(line)
	g.Voice.say(host.LevelWarning, line, nil)
	return true
}

// Unreadable says that the unit is held because the policy cannot be read. Which
// way to fail would be the policy's choice.
func (g *Gate) Unreadable(mistake, all string) {
	line := "nodegate: held: the policy cannot be read: " + report.OneLine(mistake)
	host.Status(line)
	g.Voice.say(host.LevelError, line+"; correct it, or touch "+g.BreakGlassFile, nil)
	if all != "" {
		g.Voice.log(host.LevelError, all, nil)
	}
}

// Run checks, and repairs where the policy says so, until the node passes.
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
		// A signal is no decision about the node: systemd stops the start.
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
			stuck, cmp.Or(g.Next, "systemd tries again"), g.Voice.losses()), nil)
	}
	if r.Verdict() == verdict.Fail {
		return Held
	}
	return Unknown
}

// list returns the requirements of each attempt. While the policy depends on a fact that is not known, as on the version of a kubelet
// that was too slow to say it, it is evaluated again.
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

// waitingFor returns what an attempt was waiting for when the budget ended.
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
			g.Voice.say(host.LevelWarning, fmt.Sprintf("nodegate: the node passed %d times in %s, and %s is started again and again: "+
				"what makes it exit is not among the checks; run: nodegate status, or journalctl -b -u %s", n, often, unit, unit), nil)
		}
	default:
	}
}

// A unit that starts this often crash-loops behind a gate that passes.
const (
	oftenPasses = 10
	often       = 2 * time.Minute
)

// document returns the report of one attempt, converted at the first call: that reads the machine's files, which can hang, and
// leave bounds it if nothing else needs the report.
func (g *Gate) document(p *policy.Policy, r checks.Outcome) func() report.Report {
	return sync.OnceValue(func() report.Report { return report.New(g.Host, p, r) })
}

// writeReport leaves what was found and changed for other tools. A file that cannot be
// written (an ordinary user tries the gate) is no reason to be held.
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

// explain says why the unit is held: one line for each cause, and only when the
// reason has changed since it was said.
func (g *Gate) explain(r checks.Outcome, waiting activity.Step) {
	if waiting.What != "" {
		line := "nodegate: " + cmp.Or(g.held, "held") + ": " + waiting.String()
		host.Status(line)
		if waiting != g.stuck {
			g.Voice.say(host.LevelError, line, nil)
		}
		g.stuck = waiting
		if g.last == "" { // the reason that a whole attempt found says more
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
