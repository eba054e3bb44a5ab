package checks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"nodegate/internal/host"
	"nodegate/internal/host/activity"
	"nodegate/internal/verdict"
	"nodegate/policy"
)

// ErrBudget reports the end of the budget. It is an Overdue if an attempt had not returned.
var ErrBudget = errors.New("the time budget is used up")

const (
	// attemptTime bounds one attempt: a modprobe that hangs is stopped, if it can be.
	attemptTime = 20 * time.Second
	// firstAttempt is the least time for the first attempt, even with a smaller budget: without an
	// attempt there is nothing to report.
	firstAttempt = time.Second
	// slowStep is the duration after which a step is reported.
	slowStep = time.Second
)

// Until runs the checks repeatedly until the node passes, and returns the last report. With
// g.Repair it applies, and record receives each change from another goroutine.
//
// list returns the checks of an attempt. It gets the previous report, which at first has no
// results; list must not block then. proceed is called after every attempt, and every g.Interval
// while a step of an attempt has not returned: waiting is then that step, and r is the previous
// report. proceed must not block.
//
// Until returns early with ErrBudget when g.Budget ends, with the context's error when the context
// ends, and without an error when proceed returns false. If the budget ends before the first
// attempt has returned, the report says that all requirements are unknown.
//
// Attempts run in parallel to the timer: one that hangs cannot delay the end of the budget. It is
// abandoned, and h must not be used any more.
func Until(
	ctx context.Context, h *host.Host, g policy.Gate, list func(last Outcome) []Check, record Record,
	proceed func(r Outcome, waiting activity.Step) bool,
) (Outcome, error) {
	attempt := func(ctx context.Context, last Outcome) Outcome {
		if g.Repair {
			return Apply(ctx, h, Boot, list(last), record)
		}
		return Inspect(ctx, h, Boot, list(last))
	}
	tick := time.NewTicker(g.Interval)
	defer tick.Stop()
	budget := time.NewTimer(max(g.Budget, firstAttempt))
	defer budget.Stop()
	began, last := time.Now(), Outcome{Stage: Boot}
	for {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), attemptTime)
		bounded, doing := activity.With(bounded)
		activity.Doing(bounded, "an attempt") // covers the time between two checks, which is long on a starved CPU
		done := make(chan Outcome, 1)
		go func(last Outcome) { done <- attempt(bounded, last) }(last)
		for running := true; running; {
			select {
			case last = <-done:
				running = false
				if !proceed(last, activity.Step{}) || last.Verdict() == verdict.Pass {
					cancel()
					return last, nil
				}
			case <-tick.C:
				if step := doing.Now(); time.Since(step.Since) > slowStep && !proceed(last, step) {
					cancel()
					return last, nil
				}
			case <-budget.C:
				cancel()
				late := Overdue{doing.Now()}
				switch {
				case len(last.Results) == 0:
					last = uninspectedOutcome(began, list(last), late)
				case time.Since(late.Step.Since) < slowStep:
					return last, ErrBudget // the attempt has just begun: the previous report is more useful
				}
				return last, late
			case <-ctx.Done():
				cancel()
				return last, context.Cause(ctx)
			}
		}
		cancel()
		select {
		case <-tick.C:
		case <-budget.C:
			return last, ErrBudget
		case <-ctx.Done():
			return last, context.Cause(ctx)
		}
	}
}

// uninspectedOutcome is the report of a first attempt that did not return: every verdict is unknown
// because of the step that it waited for.
func uninspectedOutcome(began time.Time, list []Check, why Overdue) Outcome {
	r := Outcome{Started: began, Duration: time.Since(began), Stage: Boot}
	for _, c := range list {
		r.Results = append(r.Results, Result{Name: c.Name(), Metadata: c.Metadata(), Err: fmt.Errorf("not inspected in time: %w", why)})
	}
	return r
}

// Overdue is ErrBudget with the step that had not returned.
type Overdue struct{ Step activity.Step }

func (o Overdue) Error() string { return o.Step.String() }
func (o Overdue) Unwrap() error { return ErrBudget }
