package checks

import (
	"context"
	"time"

	"nodegate/internal/host"
	"nodegate/policy"
)

// Until runs the checks again and again until the node passes or the context
// ends, and returns the last report. With g.Repair it applies. After every
// attempt it calls goOn, which must not block, and stops when goOn returns false.
func Until(ctx context.Context, h *host.Host, g policy.Gate, list []Check, goOn func(Report) bool) Report {
	attempt := Inspect
	if g.Repair {
		attempt = Apply
	}
	tick := time.NewTicker(g.Interval)
	defer tick.Stop()
	for {
		// An attempt that has begun is finished even where the budget ends: a
		// report that is half unknown would explain nothing.
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), attemptTime)
		report := attempt(bounded, h, Boot, list)
		cancel()
		if more := goOn(report); !more || report.Verdict() == Pass {
			return report
		}
		select {
		case <-ctx.Done():
			return report
		case <-tick.C:
		}
	}
}

// attemptTime bounds one attempt: a modprobe that hangs must not hang the gate.
const attemptTime = 20 * time.Second
