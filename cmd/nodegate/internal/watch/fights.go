package watch

import "time"

// A fight is a requirement that watch has corrected fightCount times within fightWindow: another program keeps changing it back. A
// requirement that watch cannot correct is not a fight, but has the same pauses.
const (
	fightCount  = 5
	fightWindow = 10 * time.Minute
	firstPause  = time.Minute
	longestStep = 6 // 64 minutes
)

// fights records the attempts to correct each setting. After fightCount attempts within fightWindow, the next attempt must wait for a
// pause that doubles each time: from 1 minute up to 64 minutes.
type fights map[string]*bout

type bout struct {
	tried    []time.Time // at most the last fightCount attempts
	right    int         // the number of successful attempts; the setting changed again after each but the last
	failed   bool        // the last attempt failed
	pauses   bool
	fighting bool
	since    time.Time // the start of the fight
	step     int
	next     time.Time // when the next attempt is allowed
}

// mayCorrect reports whether the setting may be corrected now.
func (f fights) mayCorrect(key string, now time.Time) bool {
	b := f[key]
	return b == nil || !b.pauses || !now.Before(b.next)
}

// recordAttempt records an attempt to correct a setting, and whether it failed. begins reports whether a fight begins with it. news reports
// whether this is the first failure after a success.
func (f fights) recordAttempt(key string, now time.Time, failed bool) (begins, news bool) {
	b := f[key]
	if b == nil {
		b = &bout{}
		f[key] = b
	}
	b.tried = append(b.tried, now)
	if len(b.tried) > fightCount {
		b.tried = b.tried[1:]
	}
	if !failed {
		b.right++
	}
	news, b.failed = failed && !b.failed, failed
	switch {
	case b.pauses:
		b.step = min(b.step+1, longestStep)
	case len(b.tried) < fightCount || now.Sub(b.tried[0]) > fightWindow:
		return false, news
	default:
		b.pauses = true
	}
	b.next = now.Add(firstPause << b.step)
	if !failed && b.right >= fightCount && !b.fighting {
		b.fighting, b.since, begins = true, now, true
	}
	return begins, news
}

// takeEnded returns and removes the fights that have ended: those whose last correction, after
// a pause, has lasted for fightWindow. It also removes settings without a fight after the
// same time.
func (f fights) takeEnded(now time.Time) []string {
	var ended []string
	for key, b := range f {
		last := b.tried[len(b.tried)-1]
		if now.Sub(last) < fightWindow || now.Before(b.next) {
			continue
		}
		if b.fighting {
			ended = append(ended, key)
		}
		delete(f, key)
	}
	return ended
}
