package watch

import "time"

// A fight is a requirement that was corrected fightCount times within fightWindow:
// somebody else keeps changing it back.
const (
	fightCount  = 5
	fightWindow = 10 * time.Minute
	firstPause  = time.Minute
	longestStep = 6 // 64 minutes
)

// fights remembers how often each thing was corrected. In a fight it allows one
// correction after a pause that doubles: a minute, two, four, up to an hour.
type fights map[string]*bout

type bout struct {
	corrected []time.Time // the last fightCount at most
	fighting  bool
	since     time.Time // the beginning of the fight
	step      int
	next      time.Time // when the next correction is allowed
}

// may reports whether the thing may be corrected now.
func (f fights) may(key string, now time.Time) bool {
	b := f[key]
	return b == nil || !b.fighting || !now.Before(b.next)
}

// note records a correction, and reports whether a fight begins with it.
func (f fights) note(key string, now time.Time) (begins bool) {
	b := f[key]
	if b == nil {
		b = &bout{}
		f[key] = b
	}
	b.corrected = append(b.corrected, now)
	if len(b.corrected) > fightCount {
		b.corrected = b.corrected[1:]
	}
	switch {
	case b.fighting:
		b.step = min(b.step+1, longestStep)
	case len(b.corrected) < fightCount || now.Sub(b.corrected[0]) > fightWindow:
		return false
	default:
		b.fighting, b.since, begins = true, now, true
	}
	b.next = now.Add(firstPause << b.step)
	return begins
}

// over returns the fights that have ended: the last correction, which came after a
// pause, has lasted for fightWindow. What never was a fight is forgotten after the
// same time.
func (f fights) over(now time.Time) []string {
	var ended []string
	for key, b := range f {
		last := b.corrected[len(b.corrected)-1]
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
