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

// ErrBudget is the end of the budget: an Overdue where an attempt had not returned.
var ErrBudget = errors.New("the budget is over")

const (
	// attemptTime bounds one attempt: a modprobe that hangs is stopped, if it can be.
	attemptTime = 20 * time.Second
	// firstAttempt is what the first attempt gets, however small the budget is:
	// without one there is nothing to report.
	firstAttempt = time.Second
	// noticeable is how long a step takes before it is worth a word.
	noticeable = time.Second
)

// Until runs the checks again and again until the node passes, and returns the
// last report. list returns them for an attempt, after the report of the one
// before, which at first has no results; then it must not wait. With g.Repair it
// applies, and keep is told of each change, from another goroutine. It returns early with ErrBudget when
// g.Budget is over, with the context's error when that ends, and without an error
// when goOn returns false. goOn must not block. It is called after every attempt,
// and every g.Interval while a step of an attempt has not returned: waiting then is
// that step, and r is the report before, which at first has no results. Where the
// budget ends before the first attempt has returned, what is returned says that
// all requirements are unknown.
//
// Attempts run beside the clock: one that hangs cannot delay the end of the
// budget. It is left behind, and h must not be used any more.
func Until(
	ctx context.Context, h *host.Host, g policy.Gate, list func(last Outcome) []Check, keep Record,
	goOn func(r Outcome, waiting activity.Step) bool,
) (Outcome, error) {
	attempt := func(ctx context.Context, last Outcome) Outcome {
		if g.Repair {
			return Apply(ctx, h, Boot, list(last), keep)
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
		activity.Doing(bounded, "an attempt") // between two checks is time, too, on a machine whose processor is taken away
		done := make(chan Outcome, 1)
		go func(last Outcome) { done <- attempt(bounded, last) }(last)
		for running := true; running; {
			select {
			case last = <-done:
				running = false
				if !goOn(last, activity.Step{}) || last.Verdict() == verdict.Pass {
					cancel()
					return last, nil
				}
			case <-tick.C:
				if step := doing.Now(); time.Since(step.Since) > noticeable && !goOn(last, step) {
					cancel()
					return last, nil
				}
			case <-budget.C:
				cancel()
				late := Overdue{doing.Now()}
				switch {
				case len(last.Results) == 0:
					last = uninspected(began, list(last), late)
				case time.Since(late.Step.Since) < noticeable:
					return last, ErrBudget // it has just begun: the report before says more
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

// uninspected is the report of a first attempt that did not return: nothing is known, because of what it waited for.
func uninspected(began time.Time, list []Check, why Overdue) Outcome {
	r := Outcome{Started: began, Duration: time.Since(began), Stage: Boot}
	for _, c := range list {
		r.Results = append(r.Results, Result{Name: c.Name(), Metadata: c.Metadata(), Err: fmt.Errorf("not inspected in time: %w", why)})
	}
	return r
}

// Overdue is ErrBudget, and the step that had not returned.
type Overdue struct{ Step activity.Step }

func (o Overdue) Error() string { return o.Step.String() }
func (o Overdue) Unwrap() error { return ErrBudget }
