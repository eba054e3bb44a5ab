package watch

import (
	"maps"
	"slices"
	"sync"
	"time"

	"nodegate/checks"
	"nodegate/policy"
)

// State is what watch knows and has done since it started. It is a copy: who
// has one may keep it.
type State struct {
	Since       time.Time      `json:"since"`
	Interval    time.Duration  `json:"intervalNs"`
	Rounds      int            `json:"rounds"`
	LastRound   time.Time      `json:"lastRound"`
	Off         string         `json:"off,omitempty"`         // by what somebody broke the glass: nothing is corrected
	PolicyError string         `json:"policyError,omitempty"` // why the policy as it stands is not the one in use
	LinkEvents  int            `json:"linkEvents"`
	Resyncs     int            `json:"resyncs"` // times that notices were missed and every link was looked at again
	Links       int            `json:"links"`   // links that were settled when they appeared
	Corrected   map[string]int `json:"corrected"`
	Last        []Correction   `json:"last"` // the last corrections, newest first
	Fights      []Fight        `json:"fights"`

	Policy *policy.Policy `json:"-"`
	Report checks.Report  `json:"-"` // the last round's, with what was corrected since
}

// Correction is one thing that was made right.
type Correction struct {
	Time time.Time `json:"time"`
	Name string    `json:"name"` // of the requirement
	Link string    `json:"link,omitempty"`
	New  bool      `json:"new,omitempty"` // the link had just appeared: nobody changed anything
	Was  string    `json:"was"`
	Now  string    `json:"now"`
}

// Fight is a requirement that somebody else keeps changing back.
type Fight struct {
	Name   string    `json:"name"`
	Since  time.Time `json:"since"`
	Next   time.Time `json:"next"` // no correction before
	Writer string    `json:"writer"`
}

// lastKept is how many corrections are remembered one by one.
const lastKept = 20

// record is the State that the loop writes and others read.
type record struct {
	mu    sync.Mutex
	state State
}

// State is a copy of what is known now. It is safe to call while Run runs.
func (w *Watcher) State() State {
	w.record.mu.Lock()
	defer w.record.mu.Unlock()
	s := w.record.state
	s.Corrected, s.Last, s.Fights = maps.Clone(s.Corrected), slices.Clone(s.Last), slices.Clone(s.Fights)
	s.Report.Results = slices.Clone(s.Report.Results)
	return s
}

func (w *Watcher) change(with func(*State)) {
	w.record.mu.Lock()
	defer w.record.mu.Unlock()
	with(&w.record.state)
}

// corrected adds one correction to the state, and tells it.
func (w *Watcher) corrected(c Correction) {
	w.change(func(s *State) {
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
