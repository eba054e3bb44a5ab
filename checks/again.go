package checks

import (
	"context"
	"slices"
	"time"

	"nodegate/internal/host"
	"nodegate/internal/host/activity"
	"nodegate/internal/verdict"
)

const (
	// recheckInterval is the pause between two inspections. kube-proxy needs some tenths of a
	// second to write its first rules: it runs iptables once for every chain, and writes one
	// address family after the other.
	recheckInterval = time.Second
	maxInspections  = 4
)

// recheckFailing inspects every check again that Moves and does not pass, until it passes or
// returns the same result twice in a row. The last result counts. On a host that does not change,
// such as a recording, it does nothing.
func recheckFailing(ctx context.Context, h *host.Host, list []Check, results []Result) {
	var suspects []int
	for i, c := range list {
		if a, is := c.(requestedProblem); is && a.Moves && h.Moves && results[i].needsRecheck() {
			suspects = append(suspects, i)
		}
	}
	for n := 1; n < maxInspections && len(suspects) > 0; n++ {
		end := activity.Doing(ctx, "rechecking rules that may be changing")
		err := sleepFor(ctx, recheckInterval)
		end()
		if err != nil {
			return
		}
		once := host.Once(h.Again())
		suspects = slices.DeleteFunc(suspects, func(i int) bool {
			was, now := results[i], inspect(ctx, once, list[i])
			if ctx.Err() != nil {
				return true // an inspection cut short by the deadline replaces no result
			}
			results[i] = now
			return !now.needsRecheck() || now.Verdict == was.Verdict && now.State.Got == was.State.Got
		})
	}
}

// needsRecheck reports whether an inspection found a fault or could not determine the state.
func (r Result) needsRecheck() bool {
	return r.Verdict == verdict.Warn || r.Verdict == verdict.Fail || r.Verdict == verdict.Unknown && r.Metadata.Unknown == ""
}
