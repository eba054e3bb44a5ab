package checks

import (
	"context"
	"fmt"
	"time"

	"nodegate/internal/host"
	"nodegate/policy"
)

// Inspect runs every check and changes nothing. A context that ends makes the
// remaining verdicts unknown.
func Inspect(ctx context.Context, h *host.Host, stage Stage, list []Check) Report {
	h = host.Once(h)
	report := Report{Started: time.Now(), Stage: stage, Results: make([]Result, 0, len(list))}
	for _, c := range list {
		report.Results = append(report.Results, inspect(ctx, h, c))
	}
	blame(report.Results)
	report.Duration = time.Since(report.Started)
	return report
}

// Apply inspects, fixes what does not hold and can be fixed, and inspects
// again. A requirement that holds is never written.
func Apply(ctx context.Context, h *host.Host, stage Stage, list []Check) Report {
	before := Inspect(ctx, h, stage, list)
	failures := make([]error, len(list))
	changed := false
	for i, c := range list {
		f, ok := c.(Fixer)
		// What is unknown is not touched: a plan could not have shown it.
		if v := before.Results[i].Verdict; !ok || v != Fail && v != Warn || ctx.Err() != nil {
			continue
		}
		changed = true
		failures[i] = f.Fix(ctx, h)
	}
	if !changed {
		return before
	}
	after := Inspect(ctx, h, stage, list)
	after.Started, after.Duration = before.Started, time.Since(before.Started)
	for i := range after.Results {
		r, was := &after.Results[i], before.Results[i]
		if r.Verdict == Pass && (was.Verdict == Fail || was.Verdict == Warn) {
			r.Fixed, r.Was = true, was.State.Got
		}
		if r.Verdict != Pass && r.Err == nil {
			r.Err = failures[i]
		}
	}
	return after
}

func inspect(ctx context.Context, h *host.Host, c Check) Result {
	r := Result{Name: c.Name(), Metadata: c.Metadata()}
	_, r.Fixable = c.(Fixer)
	switch {
	case ctx.Err() != nil:
		r.Err = ctx.Err()
		return r
	case r.Metadata.Off:
		r.Verdict, r.State.Skip = Skip, "its when is false here ("+r.Metadata.When+")"
		return r
	case r.Metadata.Unknown != "":
		r.Err = fmt.Errorf("it depends on %s, which cannot be known here", r.Metadata.Unknown)
		return r
	}
	r.State, r.Err = c.Inspect(ctx, h)
	switch {
	case r.Err != nil:
		r.Verdict = Unknown
	case r.State.Skip != "":
		r.Verdict = Skip
	case r.State.Pass:
		r.Verdict = Pass
	case r.Metadata.Severity == policy.Warn:
		r.Verdict = Warn
	default:
		r.Verdict = Fail
	}
	return r
}

// blame keeps the causes that did fail: a symptom points at its cause only
// where the cause is in the report and does not hold.
func blame(results []Result) {
	broken := map[string]bool{}
	for _, r := range results {
		if r.Verdict != Pass && r.Verdict != Skip {
			broken[r.Name] = true
		}
	}
	for i := range results {
		if !broken[results[i].State.Cause] {
			results[i].State.Cause = ""
		}
	}
}
