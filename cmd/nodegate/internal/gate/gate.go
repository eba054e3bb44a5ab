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
	"os"
	"slices"
	"strings"
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
	Call           report.Call           // completes the commands of the reasons
	BreakGlassFile string                // the file that turns break-glass on
	Again          func() *policy.Policy // re-evaluates the policy; nil if that fails; may block
	last           string                // the last reported reason; each is reported once
	stuck          activity.Step
	exits          string       // the last reported exit of the unit
	doubt          string       // the error of the last break-glass check
	held           string       // the verb of the reasons; "" means "held"
	words          string       // the last console report written
	shipped        <-chan error // the result of the on_held program; nil before it has run

	glass    Question[glass]
	machine  Question[report.Node]
	node     report.Node // describes the machine, once it is known
	silent   bool        // the machine could not be described in time, which is reported once
	decided  chan Outcome
	deadline *time.Timer // ends the start, whatever hangs
}

type glass struct {
	why string
	err error
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
	found, answered := g.glass.Ask(answerTime, func() glass {
		why, err := g.Host.BreakGlass(g.BreakGlassFile)
		return glass{why, err}
	})
	why, err := found.why, found.err
	if !answered {
		err = fmt.Errorf("the search for %s has not returned for %s", g.BreakGlassFile, answerTime)
	}
	if err != nil && err.Error() != g.doubt {
		g.doubt = err.Error()
		g.Voice.say(host.LevelWarning, "nodegate: "+g.doubt+"; break-glass is not in force", nil)
	}
	if why == "" {
		return false
	}
	line := "nodegate: break-glass in force (" + why + "): this node is NOT proven"
	g.Voice.status(line)
	g.Voice.say(host.LevelWarning, line, nil)
	return true
}

// Unreadable reports that the unit is held because the policy cannot be read. Without
// a policy the gate cannot know whether to release the unit.
func (g *Gate) Unreadable(mistake, all string) {
	line := "nodegate: held: the policy cannot be read: " + report.OneLine(mistake)
	g.Voice.status(line)
	remedy := "; correct the policy"
	if strings.Contains(mistake, "has not returned for") {
		remedy = "; `dmesg` shows why the disk is slow or hangs, and systemd retries"
	}
	g.Voice.say(host.LevelError, line+remedy+", or run `touch "+g.BreakGlassFile+"`", nil)
	if all != "" {
		g.Voice.log(host.LevelError, all, nil)
	}
}

// Run checks until the node passes, and repairs it if the policy sets repair. It returns soon after the end of the budget,
// whatever hangs; the process must end then.
func (g *Gate) Run(ctx context.Context, p *policy.Policy) Outcome {
	done := make(chan Outcome, 1)
	g.decided = make(chan Outcome, 1)
	g.deadline = time.NewTimer(max(p.Gate.Budget, time.Second) + finishTime)
	began := time.Now()
	go func() { done <- g.run(ctx, p) }()
	outcome, decided := Unknown, false
	for {
		select {
		case outcome := <-done:
			return outcome
		case outcome = <-g.decided:
			decided = true
		case <-g.deadline.C:
			if !decided {
				outcome = undecided(p.Gate)
			}
			g.abandon(p.Gate, outcome, decided, time.Since(began).Round(time.Second))
			return outcome
		}
	}
}

// undecided returns the outcome at the end of the budget if no attempt has returned.
func undecided(g policy.Gate) Outcome {
	switch {
	case g.Enforce == policy.Warn:
		return Tolerated
	case g.OnTimeout == policy.Release:
		return Released
	}
	return Unknown
}

// abandon reports a start that ends although one of its steps has not returned.
func (g *Gate) abandon(p policy.Gate, outcome Outcome, decided bool, waited time.Duration) {
	step := cmp.Or(g.Voice.waiting(), "a step of the gate has not returned")
	g.Voice.end()
	fresh := Voice{Stderr: g.Voice.Stderr}
	switch {
	case decided:
		fresh.say(host.LevelWarning, "nodegate: "+step+"; not waiting for it", nil)
	case outcome == Unknown:
		fresh.say(host.LevelError, fmt.Sprintf("nodegate: %s stays held after %s: %s", p.Unit, waited, step), nil)
	default:
		fresh.say(host.LevelError, fmt.Sprintf("nodegate: %s starts after %s although the node is NOT proven: %s", p.Unit, waited, step), nil)
	}
}

func (g *Gate) run(ctx context.Context, p *policy.Policy) Outcome {
	began := time.Now()
	off, tolerated, kept := false, false, false
	made := recorder{write: report.RecordChange}
	if p.Gate.Enforce == policy.Warn {
		g.held = "would be held"
	}
	r, err := checks.Until(ctx, g.Host, p.Gate, g.list(p), made.record, func(r checks.Outcome, waiting activity.Step) bool {
		whole := waiting.What == ""
		var document report.Report
		if whole {
			document = g.document(p, r)
			g.writeReport(document, r)
			g.announceExit(r)
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
	outcome := decide(p.Gate, r, err, off, tolerated)
	g.decided <- outcome
	g.deadline.Reset(finishTime) // what follows only reports the outcome
	if errors.Is(err, checks.ErrBudget) && !kept {
		g.writeReport(g.document(p, r), r)
	}
	defer g.told()
	g.announce(p.Gate, r, err, outcome, time.Since(began).Round(time.Millisecond))
	return outcome
}

// decide returns the outcome of the attempts.
func decide(g policy.Gate, r checks.Outcome, err error, off, tolerated bool) Outcome {
	budget := errors.Is(err, checks.ErrBudget)
	switch {
	case off:
		return GlassBroken
	case err == nil && r.Verdict() == verdict.Pass:
		return Proven
	case tolerated:
		return Tolerated
	case budget && undecided(g) != Unknown:
		return undecided(g)
	case r.Verdict() == verdict.Fail:
		return Held
	}
	return Unknown
}

// announce reports the outcome.
func (g *Gate) announce(p policy.Gate, r checks.Outcome, err error, outcome Outcome, waited time.Duration) {
	switch {
	case outcome == GlassBroken:
	case outcome == Proven:
		g.proven(p.Unit, r, waited)
	case outcome == Tolerated:
		g.explain(r, waitingFor(err))
		g.Voice.status("nodegate: NOT proven, nothing is held (enforce is warn)" + g.because())
		g.Voice.say(host.LevelWarning, fmt.Sprintf("nodegate: %s starts after %s although the node is NOT proven (enforce = \"warn\")%s%s",
			p.Unit, waited, g.because(), g.Voice.losses()), nil)
	case outcome == Released:
		g.explain(r, waitingFor(err))
		g.Voice.status("nodegate: released, NOT proven" + g.because())
		g.Voice.say(host.LevelError, fmt.Sprintf("nodegate: RELEASED %s after %s although the node is NOT proven (on_timeout = "+
			"\"release\")%s%s",
			p.Unit, waited, g.because(), g.Voice.losses()), nil)
	case !errors.Is(err, checks.ErrBudget):
		// A signal does not decide about the node: systemd is stopping the start.
		g.Voice.log(host.LevelNotice, fmt.Sprintf("nodegate: stopped after %s; %s was held%s", waited, p.Unit, g.because()), nil)
	default:
		g.explain(r, waitingFor(err))
		stuck := waitingFor(err).String()
		if stuck != "" {
			stuck = ": " + stuck
		}
		g.Voice.log(host.LevelError, fmt.Sprintf("nodegate: %s stays held after %s%s; systemd retries%s", p.Unit, waited,
			stuck, g.Voice.losses()), nil)
	}
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

// announceExit reports an announced result that holds nothing, each text once: how the unit exited after its last start.
func (g *Gate) announceExit(r checks.Outcome) {
	for _, res := range r.Results {
		if !res.Announce || !res.Differs() {
			continue
		}
		if m := report.NewMessage(res); m.Text != g.exits {
			g.exits = m.Text
			g.Voice.say(host.LevelWarning, "nodegate: "+m.Text, m.Fields)
		}
	}
}

func (g *Gate) proven(unit string, r checks.Outcome, waited time.Duration) {
	requirements := len(r.Results)
	line := fmt.Sprintf("nodegate: node proven, %s after %s%s", report.Count(requirements, "requirement"), waited, g.Voice.losses())
	nothing := r.Applying() == 0
	if nothing {
		line = fmt.Sprintf("nodegate: nothing checked: %s; %s starts after %s%s", report.NoneApplies(requirements), unit, waited,
			g.Voice.losses())
	}
	if g.exits != "" {
		g.Voice.status(line + "; " + g.exits)
	} else {
		g.Voice.status(line)
	}
	if nothing {
		g.Voice.say(host.LevelWarning, line, nil)
	} else if g.last != "" {
		g.Voice.say(host.LevelNotice, line, nil)
	} else {
		g.Voice.log(host.LevelNotice, line, nil)
	}
	passes, n := make(chan int, 1), 1
	g.Voice.leave(func() { passes <- report.CountPass(time.Now(), often) })
	select {
	case n = <-passes:
		if n >= oftenPasses {
			g.Voice.say(host.LevelWarning, fmt.Sprintf("nodegate: the node passed %d times in %s, but %s keeps restarting; "+
				"run `nodegate status` or `journalctl -b -u %s`", n, often, unit, unit), nil)
		}
	default:
	}
	if n == 1 { // not at each start of a unit that keeps restarting
		g.warn(r)
	}
}

// A unit that passes the gate this often is in a crash loop.
const (
	oftenPasses = 10
	often       = 2 * time.Minute
)

// document returns the report of one attempt. A machine whose files do not answer in time is described by its name only.
func (g *Gate) document(p *policy.Policy, r checks.Outcome) report.Report {
	if g.node.Name == "" {
		node, known := g.machine.Ask(answerTime, func() report.Node { return report.Describe(g.Host) })
		if known {
			g.node = node
		}
		if !known && !g.silent {
			g.silent = true
			g.Voice.say(host.LevelWarning, fmt.Sprintf("nodegate: reading os-release has not returned for %s; the report does not describe "+
				"the machine", answerTime), nil)
		}
	}
	document := report.NewFor(g.node, p, r)
	if document.Node.Name == "" {
		document.Node.Name, _ = os.Hostname()
	}
	return document
}

// writeReport writes the report and the changes to /run for other tools. A failed write does not hold
// the unit: an unprivileged user may be trying the gate.
func (g *Gate) writeReport(document report.Report, r checks.Outcome) {
	kept := make(chan error, 1)
	g.Voice.leave(func() {
		kept <- report.Leave(report.File, document)
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
		g.Voice.status(line)
		if waiting != g.stuck {
			g.Voice.say(host.LevelError, line, nil)
		}
		g.stuck = waiting
		if g.last == "" { // do not replace the reason of a complete attempt, which is more precise
			g.last = waiting.String()
		}
		return
	}
	causes := report.Blocking(r, g.Call)
	if len(causes) == 0 || causes[0].Text == g.last {
		return
	}
	g.last = causes[0].Text
	more := ""
	if len(causes) > 1 {
		more = fmt.Sprintf(" (and %d more)", len(causes)-1)
	}
	by := "nodegate: " + cmp.Or(g.held, "held") + " by "
	g.Voice.status(by + g.last + more)
	for _, cause := range causes {
		g.Voice.say(host.LevelError, by+cause.Text, cause.Fields)
	}
}
