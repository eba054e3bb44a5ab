package settle

import "time"

// budget limits rounds to one part in share of a processor. Unused time is saved for at most Every,
// so an expensive round, such as the first ones after a boot, delays the next round only if others
// preceded it.
type budget struct {
	every time.Duration
	saved time.Duration // processor time; negative if owed
	since time.Time     // time at which saved had its value
}

const share = 125 // together with an idle watch, less than one part in 100

func newBudget(every time.Duration, now time.Time) budget {
	return budget{every: every, saved: every / share, since: now}
}

// mayOwe reports whether a round may begin although earlier ones have used its time.
func (b *budget) mayOwe() bool { return b.saved > -b.every/share }

// recordUse records the processor time of a round and returns the pause before the next round: until
// nothing is owed, at most twice Every.
func (b *budget) recordUse(used time.Duration, now time.Time) time.Duration {
	most := b.every / share
	b.saved = min(b.saved+now.Sub(b.since)/share, most)
	b.saved = max(b.saved-used, -2*most)
	b.since = now
	return max(-b.saved*share, 0)
}
