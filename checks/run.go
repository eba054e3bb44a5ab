package checks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"nodegate/internal/host"
	"nodegate/internal/host/activity"
	"nodegate/internal/verdict"
	"nodegate/policy"
)

// Inspect runs every check and changes nothing. A context that ends makes the
// remaining verdicts unknown. The checks that wait for others to answer run beside
// the rest, from the first problem on: to try a rule may load the modules that the
// settings before it are about.
func Inspect(ctx context.Context, live *host.Host, stage Stage, list []Check) Outcome {
	h := host.Once(live)
	report := Outcome{Started: time.Now(), Stage: stage, Results: make([]Result, len(list))}
	var beside sync.WaitGroup
	start := sync.OnceFunc(func() {
		for i, c := range list {
			if isBeside(c) {
				beside.Go(func() { report.Results[i] = inspect(ctx, h, c) })
			}
		}
	})
	for i, c := range list {
		if _, is := c.(asked); is {
			start()
		}
		if !isBeside(c) {
			report.Results[i] = inspect(ctx, h, c)
		}
	}
	beside.Wait()
	lookAgain(ctx, live, list, report.Results)
	dropIntactCauses(report.Results)
	report.Duration = time.Since(report.Started)
	return report
}

// Record is told of each change for a requirement, as that was found, right after it was made: the next one may hang. Nil: nobody is.
type Record func(was Result, made []Change)

// Apply inspects, makes the changes that the inspection asks for, and inspects
// again. What passes is never written. What is unknown is not written either: a
// plan could not have shown it.
func Apply(ctx context.Context, h *host.Host, stage Stage, list []Check, keep Record) Outcome {
	before := Inspect(ctx, h, stage, list)
	failures := make([]error, len(list))
	made := make([][]Change, len(list))
	changed := false
	for i, res := range before.Results {
		if !res.Differs() {
			continue
		}
		end := activity.Doing(ctx, res.Name)
		for _, c := range res.State.Changes {
			if ctx.Err() != nil {
				break
			}
			changed = true
			err := c.Make(ctx, h)
			if wrote(c, err) {
				made[i] = append(made[i], c)
				if keep != nil {
					keep(res, []Change{c})
				}
			}
			failures[i] = errors.Join(failures[i], err)
		}
		end()
	}
	if !changed {
		return before
	}
	// What was changed is read back even where the time is up: a report that only
	// says so would hide why the change failed.
	proof, cancel := context.WithTimeout(context.WithoutCancel(ctx), proofTime)
	defer cancel()
	after := Inspect(proof, h, stage, list)
	after.Started, after.Duration = before.Started, time.Since(before.Started)
	for i := range after.Results {
		r, was := &after.Results[i], before.Results[i]
		r.Made = made[i]
		if r.Verdict == verdict.Pass && was.Differs() {
			r.Fixed, r.Was = true, was.State.Got
		}
		if r.Verdict != verdict.Pass && r.Err == nil {
			r.Err = cmpError(failures[i], undone(made[i], r.State.Changes))
			for _, c := range was.State.Changes {
				if r.Err != nil && c.Failed != "" {
					r.State.Remedy = c.Failed // what was just tried does not help
				}
			}
		}
	}
	return after
}

// wrote reports whether a change that was made with this error wrote anything: of several writes some may have come before it.
func wrote(c Change, err error) bool {
	if c.Target == "" {
		return len(c.AlsoWritten()) > 0
	}
	return err == nil
}

// proofTime bounds the inspection after the changes; a healthy one takes milliseconds.
const proofTime = 5 * time.Second

// cmpError returns the first error that is not nil.
func cmpError(errs ...error) error {
	i := slices.IndexFunc(errs, func(err error) bool { return err != nil })
	if i < 0 {
		return nil
	}
	return errs[i]
}

// undone reports the changes that were made without an error and are still
// needed: the kernel may clamp a value, or accept it and do nothing.
func undone(made, needed []Change) error {
	var errs []error
	for _, m := range made {
		for _, n := range needed {
			if n.What != m.What {
				continue
			}
			did := "made it " + n.From
			if n.From == m.From {
				did = "accepted it and kept " + n.From
			}
			errs = append(errs, fmt.Errorf("wrote %s=%s; the kernel %s", m.What, m.To, did))
		}
	}
	return errors.Join(errs...)
}

// SkippedOff begins the reason of what the policy does not ask for on this node: nothing was looked at.
const SkippedOff = "its when is false here"

func inspect(ctx context.Context, h *host.Host, c Check) Result {
	defer activity.Doing(ctx, c.Name())()
	r := Result{Name: c.Name(), Metadata: c.Metadata()}
	switch {
	case ctx.Err() != nil:
		r.Err = ctx.Err()
		return r
	case r.Metadata.Off:
		r.Verdict, r.State.Skip = verdict.Skipped, SkippedOff+" ("+r.Metadata.When+")"
		return r
	case r.Metadata.Unknown != "":
		r.Err = fmt.Errorf("it depends on %s, which cannot be known here", r.Metadata.Unknown)
		return r
	}
	r.State, r.Err = c.Inspect(ctx, h)
	switch {
	case r.Err != nil:
		r.Verdict = verdict.Unknown
	case r.State.Skip != "":
		r.Verdict = verdict.Skipped
	case r.State.Pass:
		r.Verdict = verdict.Pass
	case r.Metadata.Severity == policy.Warn:
		r.Verdict = verdict.Warn
	default:
		r.Verdict = verdict.Fail
	}
	if r.Metadata.Undecided != "" && r.Verdict != verdict.Fail {
		r.Verdict, r.Metadata.Severity = verdict.Unknown, policy.Block
		r.Err = cmpError(r.Err, fmt.Errorf("what else the policy asks of it depends on %s, which cannot be known here", r.Metadata.Undecided))
	}
	return r
}

// dropIntactCauses removes the causes that did not fail: a symptom names a cause
// only where that check is in the report and does not pass. Where the policy leaves
// the cause out, nobody mends it, and the changes that need it cannot be made. What
// blocks is not explained by what only warns, though it follows from it: nobody
// would say what blocks.
func dropIntactCauses(results []Result) {
	causes := map[string]Result{}
	for _, r := range results {
		causes[r.Name] = r
	}
	for i := range results {
		r := &results[i]
		cause, is := causes[r.State.Cause]
		if is && cause.Verdict == verdict.Skipped {
			r.State.Changes = nil
		}
		if !is || cause.Verdict == verdict.Skipped || cause.Verdict == verdict.Pass {
			r.State.Cause = ""
		}
		r.Follows = r.State.Cause
		if r.Metadata.Severity == policy.Block && cause.Metadata.Severity == policy.Warn {
			r.State.Cause = ""
		}
	}
}
