package settle

import "time"

// Written is kube-proxy's own data about its syncs in one family.
type Written struct {
	At     time.Time // end of the last sync
	Queued time.Time // when it last received a change
	Shared bool      // both are shared by two families, and show the later one
	Whole  bool      // a sync is one program, which Writer shows: the rules contain all or nothing of it
}

// writings is the observed history of Written. A change that arrives during a sync is part of the next sync, which begins at once. As
// soon as the first sync ends, the data no longer show the waiting change, because At is later than Queued. Only a sync that began after
// the change contains it.
type writings struct {
	last Written
	ends []time.Time // the latest is last
}

// recordWritten records the data of each family from before the rules were read.
func (l *loop) recordWritten(written map[string]Written) {
	for family, said := range written {
		if l.writings[family] == nil {
			l.writings[family] = &writings{}
		}
		l.writings[family].record(said)
	}
}

// record records data from before the rules were read. Empty data change nothing.
func (w *writings) record(said Written) {
	if said == (Written{}) {
		return
	}
	said.Shared = said.Shared || w.last.Shared
	if w.last = said; len(w.ends) == 0 || said.At.After(w.ends[len(w.ends)-1]) {
		w.ends = append(w.ends, said.At)
	}
}

// lastBegan returns a time before the start of the last sync: the end of the previous sync. If two families share their data, each family
// contributes two ends, and one more may lie between them. It returns the zero time if unknown.
func (w *writings) lastBegan() time.Time {
	back := 2
	if w.last.Shared {
		back = 4
	}
	if len(w.ends) < back {
		return time.Time{}
	}
	return w.ends[len(w.ends)-back]
}

// failedWrite bounds the time that kube-proxy may need for a sync after a failed one: it retries after syncPeriod, 30 s unless
// configured. After a minute, kubeproxy.sync.stuck reports that it does not write.
const failedWrite = time.Minute

// isComplete reports whether the rules reflect every change that kube-proxy had received by heard. That is the case if it has received no
// change since the last sync began, or if that sync began after heard. If a sync is one program, it is sufficient that one has ended
// since heard. A sync that takes too long is not an excuse.
func (w *writings) isComplete(heard, now time.Time) bool {
	if w.last.Whole {
		waits := w.last.Queued.After(w.last.At) && !w.last.At.After(heard)
		return !waits || now.Sub(heard) >= failedWrite
	}
	began := w.lastBegan()
	return w.last.Queued.Before(began) || began.After(heard) || now.Sub(w.last.Queued) >= stuckWrite
}
