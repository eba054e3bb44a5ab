package watch

import "time"

// A fight is a requirement that watch made right fightCount times, with so many attempts within fightWindow: somebody else keeps changing
// it back. What watch cannot make right is nobody's fight, and has the same pauses.
const (
	fightCount  = 5
	fightWindow = 10 * time.Minute
	firstPause  = time.Minute
	longestStep = 6 // 64 minutes
)

// fights remembers how often watch tried to correct each thing. After fightCount attempts within fightWindow it allows one after a pause
// that doubles: a minute, two, four, up to an hour.
type fights map[string]*bout

type bout struct {
	tried    []time.Time // the last fightCount at most
	right    int         // how many of all made it right; but for the last one, it failed again after each
	failed   bool        // the last one did not
	pauses   bool
	fighting bool
	since    time.Time // the beginning of the fight
	step     int
	next     time.Time // when the next attempt is allowed
}

// may reports whether the thing may be corrected now.
func (f fights) may(key string, now time.Time) bool {
	b := f[key]
	return b == nil || !b.pauses || !now.Before(b.next)
}

// note records an attempt, and whether it failed to make the thing right. It reports whether a fight begins with it, and whether it is
// news that it failed: the attempt before did not.
func (f fights) note(key string, now time.Time, failed bool) (begins, news bool) {
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

// over returns the fights that have ended: the last attempt, which came after a
// pause, has lasted for fightWindow. What never was a fight is forgotten after the
// same time.
func (f fights) over(now time.Time) []string {
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
