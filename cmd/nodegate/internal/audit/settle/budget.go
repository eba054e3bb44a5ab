package settle

import "time"

// budget holds rounds to one part in share of a processor. What they do not use is saved for as long as every, so a round that
// costs much, as the first ones after a boot, delays the next one only where others came before it.
type budget struct {
	every time.Duration
	saved time.Duration // of a processor; less than 0: owed
	since time.Time     // saved was so much then
}

const share = 125 // with what a watch in peace uses, less than one part in 100

func newBudget(every time.Duration, now time.Time) budget {
	return budget{every: every, saved: every / share, since: now}
}

// spend books what a round has used, and returns how long no other one begins: until nothing is owed, twice every at most.
func (b *budget) spend(used time.Duration, now time.Time) time.Duration {
	most := b.every / share
	b.saved = min(b.saved+now.Sub(b.since)/share, most)
	b.saved = max(b.saved-used, -2*most)
	b.since = now
	return max(-b.saved*share, 0)
}
