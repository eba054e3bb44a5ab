package settle

import "time"

// Written is what kube-proxy says of its writings in one family.
type Written struct {
	At     time.Time // the end of the last one
	Queued time.Time // when it last heard of a change
	Shared bool      // both are those of two families, whichever was later
	Whole  bool      // a writing is one program, which Writer shows: all or nothing of it is in the rules
}

// writings is what has been seen of them. A change that comes during one is in the next, which begins at once, and from the first one's end
// on nothing says that it waits: At is later than Queued then. Only a writing that began later than the change has it.
type writings struct {
	last Written
	ends []time.Time // the latest last
}

// note notes what was said of each family before the rules were read.
func (l *loop) note(written map[string]Written) {
	for family, said := range written {
		if l.writings[family] == nil {
			l.writings[family] = &writings{}
		}
		l.writings[family].note(said)
	}
}

// note takes what was said before the rules were read. Where nothing was, it is as it was.
func (w *writings) note(said Written) {
	if said == (Written{}) {
		return
	}
	said.Shared = said.Shared || w.last.Shared
	if w.last = said; len(w.ends) == 0 || said.At.After(w.ends[len(w.ends)-1]) {
		w.ends = append(w.ends, said.At)
	}
}

// began returns a time that the last writing began after: one follows the other, so the end of the one before. Of two families, whose
// writings have one figure, each takes two ends, and one may be between them. The zero time is not known.
func (w *writings) began() time.Time {
	back := 2
	if w.last.Shared {
		back = 4
	}
	if len(w.ends) < back {
		return time.Time{}
	}
	return w.ends[len(w.ends)-back]
}

// failedWrite is how long kube-proxy may take for a writing after one that failed: it tries again after syncPeriod, 30 s unless configured.
// From a minute on, kubeproxy.sync.stuck says that it does not write.
const failedWrite = time.Minute

// done reports whether what is in the rules is all that kube-proxy makes of what it heard: it has heard of nothing since the last writing
// began, or that began after the given time, by which it had heard of it. Where a writing is whole, one that has ended since that time is
// enough. What takes too long is no excuse any more.
func (w *writings) done(heard, now time.Time) bool {
	if w.last.Whole {
		waits := w.last.Queued.After(w.last.At) && !w.last.At.After(heard)
		return !waits || now.Sub(heard) >= failedWrite
	}
	began := w.began()
	return w.last.Queued.Before(began) || began.After(heard) || now.Sub(w.last.Queued) >= stuckWrite
}
