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
	// againTime lies between two looks. kube-proxy takes some tenths of a second for its first rules: it runs iptables once for
	// every chain, and writes the two families one after the other.
	againTime = time.Second
	maxLooks  = 4
)

// lookAgain inspects what does not pass and Moves again, until it passes or says the same twice in turn. The last look counts. Where the
// host does not change, nothing is asked twice.
func lookAgain(ctx context.Context, h *host.Host, list []Check, results []Result) {
	var doubted []int
	for i, c := range list {
		if a, is := c.(asked); is && a.Moves && h.Moves && results[i].accuses() {
			doubted = append(doubted, i)
		}
	}
	for look := 1; look < maxLooks && len(doubted) > 0; look++ {
		end := activity.Doing(ctx, "looking again at rules that may just be written")
		err := pause(ctx, againTime)
		end()
		if err != nil {
			return
		}
		once := host.Once(h)
		doubted = slices.DeleteFunc(doubted, func(i int) bool {
			was, now := results[i], inspect(ctx, once, list[i])
			if ctx.Err() != nil {
				return true // what the time cut off takes nothing back
			}
			results[i] = now
			return !now.accuses() || now.Verdict == was.Verdict && now.State.Got == was.State.Got
		})
	}
}

// accuses reports whether an inspection found something wrong, or could not see.
func (r Result) accuses() bool {
	return r.Verdict == verdict.Warn || r.Verdict == verdict.Fail || r.Verdict == verdict.Unknown && r.Metadata.Unknown == ""
}
