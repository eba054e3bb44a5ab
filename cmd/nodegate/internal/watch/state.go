package watch

import (
	"maps"
	"slices"
	"sync"

	"nodegate/checks"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host"
	"nodegate/policy"
)

// Status is the state of watch and its work since the start. It is a copy, which the
// caller may keep.
type Status struct {
	report.Watching
	Policy *policy.Policy
	Report checks.Outcome // of the last round, updated by later corrections
}

// Document returns the state of a watch on h as the document for other tools.
func (s Status) Document(h *host.Host) report.Watch {
	return report.NewWatch(h, s.Watching, s.Policy, s.Report)
}

// lastKept is the number of recent corrections in the status.
const lastKept = 20

// record is the status that the loop writes and other goroutines read.
type record struct {
	mu    sync.Mutex
	state Status
}

// State returns a copy of the current status. It is safe to call while Run runs.
func (w *Watcher) State() Status {
	w.record.mu.Lock()
	defer w.record.mu.Unlock()
	s := w.record.state
	s.Corrected, s.Last, s.Fights = maps.Clone(s.Corrected), slices.Clone(s.Last), slices.Clone(s.Fights)
	s.Report.Results = slices.Clone(s.Report.Results)
	if w.Auditing != nil {
		s.Audit = w.Auditing()
	}
	return s
}

func (w *Watcher) updateStatus(with func(*Status)) {
	w.record.mu.Lock()
	defer w.record.mu.Unlock()
	with(&w.record.state)
}

// recordCorrection adds one correction to the status, and reports it.
func (w *Watcher) recordCorrection(c report.Correction) {
	w.updateStatus(func(s *Status) {
		s.Last = slices.Insert(s.Last, 0, c)
		s.Last = s.Last[:min(len(s.Last), lastKept)]
		if c.New {
			s.Links++
		} else {
			s.Corrected[c.Name]++
		}
	})
	w.dirty = true
	if w.Corrected != nil {
		w.Corrected(c)
	}
}
