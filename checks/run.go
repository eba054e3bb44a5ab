package checks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"nodegate/internal/host"
	"nodegate/internal/host/activity"
	"nodegate/internal/sorted"
	"nodegate/internal/verdict"
	"nodegate/policy"
)

// Inspect runs every check and changes nothing. If the context ends, the remaining verdicts are
// unknown. Concurrent checks run in parallel to the others, but start only at the first problem:
// trying a rule may load modules that the settings before it are about.
func Inspect(ctx context.Context, live *host.Host, stage Stage, list []Check) Outcome {
	h := host.Once(live)
	report := Outcome{Started: time.Now(), Stage: stage, Results: make([]Result, len(list))}
	var beside sync.WaitGroup
	start := sync.OnceFunc(func() {
		for i, c := range list {
			if isConcurrent(c) {
				beside.Go(func() { report.Results[i] = inspect(ctx, h, c) })
			}
		}
	})
	for i, c := range list {
		if _, is := c.(requestedProblem); is || runsProgram(c) {
			start()
		}
		if !isConcurrent(c) {
			report.Results[i] = inspect(ctx, h, c)
		}
	}
	beside.Wait()
	recheckFailing(ctx, live, list, report.Results)
	dropIntactCauses(report.Results)
	report.Duration = time.Since(report.Started)
	return report
}

// Record receives each change, and the result before it, right before the change is made, so that it can be undone even if the
// program is killed then. It receives the change again after it was made if another value was stored, other settings changed
// along with it, or it failed: then To equals From. It may be nil.
type Record func(was Result, made []Change)

// Apply inspects, makes the changes that the inspection returned, and inspects again. It never
// writes a requirement that passes, or one that is unknown: a plan could not have shown that. If a
// write has changed other settings along with its own, a second pass corrects these.
func Apply(ctx context.Context, h *host.Host, stage Stage, list []Check, record Record) Outcome {
	if record == nil {
		record = func(Result, []Change) {}
	}
	before := Inspect(ctx, h, stage, list)
	failures, made := make([]error, len(list)), make([][]Change, len(list))
	tried := map[string]bool{}
	if makeChanges(ctx, h, before, tried, failures, made, record); len(tried) == 0 {
		return before
	}
	// Read the changes back even if the time is up: a report of the timeout alone would hide why a
	// change failed.
	proof, cancel := context.WithTimeout(context.WithoutCancel(ctx), proofTime)
	defer cancel()
	after := Inspect(proof, h.Again(), stage, list)
	if first := len(tried); ctx.Err() == nil {
		if makeChanges(ctx, h, after, tried, failures, made, record); len(tried) > first {
			after = Inspect(proof, h.Again(), stage, list)
		}
	}
	after.Started, after.Duration = before.Started, time.Since(before.Started)
	for i := range after.Results {
		r, was := &after.Results[i], before.Results[i]
		r.Made = made[i]
		if r.Verdict == verdict.Pass && was.Differs() {
			r.Fixed, r.Was = true, was.State.Got
		}
		if r.Verdict != verdict.Pass && r.Err == nil {
			r.Err = cmp.Or(failures[i], ineffectiveChanges(made[i], r.State.Changes))
			for _, c := range was.State.Changes {
				switch {
				case r.Err == nil:
				case c.Stored() != c.To && c.Stored() == r.State.Got:
					r.State.Remedy = "write " + c.Stored() + " in the policy, or another value that the kernel stores unchanged"
				case c.Failed != "":
					r.State.Remedy = c.Failed // the remedy was just tried
				}
			}
			if refusal, is := errors.AsType[*host.Refusal](r.Err); is {
				r.State.Remedy = refusal.Remedy
			}
		}
	}
	return after
}

// makeChanges makes the changes of the results that are not tried yet. A parameter that changes others is written before them.
func makeChanges(
	ctx context.Context, h *host.Host, found Outcome, tried map[string]bool, failures []error, made [][]Change, record Record,
) {
	type write struct {
		result int
		Change
	}
	var all, parameters []write
	isParameter := func(w write) bool { return w.Kind == SetSysctl && w.Target != "" }
	for i, res := range found.Results {
		if !res.Differs() {
			continue
		}
		for _, c := range res.State.Changes {
			if tried[c.What] {
				continue
			}
			w := write{i, c}
			if all = append(all, w); isParameter(w) {
				parameters = append(parameters, w)
			}
		}
	}
	sorted.By(parameters, func(a, b write) int { return cmp.Compare(host.WriteOrder(a.Target), host.WriteOrder(b.Target)) })
	for i := range all {
		if isParameter(all[i]) {
			all[i], parameters = parameters[0], parameters[1:]
		}
	}
	for _, w := range all {
		if ctx.Err() != nil {
			return
		}
		c, i, res := w.Change, w.result, found.Results[w.result]
		end := activity.Doing(ctx, res.Name)
		tried[c.What] = true
		if c.Target != "" {
			record(res, []Change{c})
		}
		err := c.Make(ctx, h)
		written := err == nil
		if c.Target == "" { // of several writes, some may have come before the error
			written = len(c.AlsoWritten()) > 0
		}
		if written {
			made[i] = append(made[i], c)
		}
		recordEnd(res, c, written, record)
		failures[i] = errors.Join(failures[i], err)
		end()
	}
}

// recordEnd records what a change did, where it is not what was recorded before it.
func recordEnd(res Result, c Change, written bool, record Record) {
	switch {
	case written && (c.Target == "" || c.Stored() != c.To || c.AlsoWritten != nil && len(c.AlsoWritten()) > 0):
		record(res, []Change{c})
	case !written && c.Target != "" && !c.Kind.IsList(): // of a list, some may have been written
		c.To = c.From
		record(res, []Change{c})
	}
}

// proofTime bounds the inspection after the changes; a healthy one takes milliseconds.
const proofTime = 5 * time.Second

// ineffectiveChanges returns an error for each change that was made without an error and is still
// needed: the kernel may clamp a value, or accept it and do nothing.
func ineffectiveChanges(made, needed []Change) error {
	var errs []error
	for _, m := range made {
		for _, n := range needed {
			if n.What != m.What {
				continue
			}
			did := "changed it to " + n.From
			switch {
			case m.Stored() != m.To && m.Stored() == n.From:
				did = "stores " + n.From + " instead"
			case n.From == m.From:
				did = "accepted it and kept " + n.From
			}
			errs = append(errs, fmt.Errorf("wrote %s=%s; the kernel %s", m.What, m.To, did))
		}
	}
	return errors.Join(errs...)
}

func inspect(ctx context.Context, h *host.Host, c Check) Result {
	defer activity.Doing(ctx, c.Name())()
	r := Result{Name: c.Name(), Metadata: c.Metadata(), Announce: isAnnounced(c)}
	switch {
	case ctx.Err() != nil:
		r.Err = ctx.Err()
		return r
	case r.Metadata.Off:
		r.Verdict, r.State.Skip = verdict.Skipped, "its when condition is false here ("+r.Metadata.When+")"
		return r
	case r.Metadata.Unknown != "":
		r.Err = fmt.Errorf("it depends on %s, which is unknown here", r.Metadata.Unknown)
		return r
	}
	r.State, r.Err = c.Inspect(ctx, h)
	if _, concludes := c.(requestedProblem); !concludes {
		r.State, r.Err = host.Plain(h, c.Name()+" "+r.State.Want, r.State, r.Err)
	}
	switch {
	case r.Err != nil:
		r.Verdict, r.State.Got = verdict.Unknown, "" // an inspection begins with the wanted state
		if r.State.Minor {
			r.Metadata.Severity = policy.Warn
		}
	case r.State.Skip != "":
		r.Verdict, r.State.Got = verdict.Skipped, ""
	case r.State.Pass:
		r.Verdict = verdict.Pass
	case r.State.Minor, r.Metadata.Severity == policy.Warn:
		r.Verdict = verdict.Warn
	default:
		r.Verdict = verdict.Fail
	}
	// The block that could not be decided may demand another value, and may be a blocking one. A failure is certain without it.
	if r.Metadata.Undecided != "" && r.Verdict != verdict.Fail {
		r.Verdict, r.Metadata.Severity = verdict.Unknown, policy.Block
		r.Err = cmp.Or(r.Err, fmt.Errorf("another block for it depends on %s, which is unknown here", r.Metadata.Undecided))
	}
	return r
}

// dropIntactCauses removes causes that did not fail: a symptom names a cause only if that check is
// in the report and does not pass. If the policy omits the cause, or if no change fixes it, the changes
// that depend on it are dropped. A blocking result does not name a cause that only warns, although
// it follows from it: the report would then name no blocking fault.
func dropIntactCauses(results []Result) {
	causes := map[string]Result{}
	for _, r := range results {
		causes[r.Name] = r
	}
	for i := range results {
		r := &results[i]
		cause, is := causes[r.State.Cause]
		if is && (cause.Verdict == verdict.Skipped || cause.Differs() && cause.State.Changes == nil) {
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
