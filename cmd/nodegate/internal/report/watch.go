package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/verdict"
	"nodegate/policy"
)

// Watch is the document that watch leaves for other tools. Fields are added,
// never renamed.
type Watch struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Watching
	Written time.Time `json:"written"`
	Report  Report    `json:"report"` // the last round's, with what was corrected since
}

// Watching is what watch has done since it started.
type Watching struct {
	Since       time.Time      `json:"since"`
	Interval    time.Duration  `json:"intervalNs"`
	Rounds      int            `json:"rounds"`
	LastRound   time.Time      `json:"lastRound"`
	BreakGlass  string         `json:"breakGlass,omitempty"`  // the break glass in force: nothing is corrected
	PolicyError string         `json:"policyError,omitempty"` // why the policy as it stands is not the one in use
	LinkEvents  int            `json:"linkEvents"`
	Resyncs     int            `json:"resyncs"` // times that notices were missed and every link was inspected again
	Links       int            `json:"links"`   // links that were set when they appeared
	Corrected   map[string]int `json:"corrected"`
	Last        []Correction   `json:"last"` // the last corrections, newest first
	Fights      []Fight        `json:"fights"`
	Audit       *Auditing      `json:"audit,omitempty"` // where the policy has an audit block
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

// Subject returns the requirement that was corrected, and the link.
func (c Correction) Subject() string {
	if c.Link == "" {
		return c.Name
	}
	return c.Name + " of " + c.Link
}

// Fight is a requirement that another program keeps changing back.
type Fight struct {
	Name   string    `json:"name"`
	Since  time.Time `json:"since"`
	Next   time.Time `json:"next"` // no correction before
	Writer string    `json:"writer"`
}

// NewWatch returns the document of a watch on h that did w and found r with p. Its times are by the clock as it is now, also those of
// before somebody set it: every age is true.
func NewWatch(h *host.Host, w Watching, p *policy.Policy, r checks.Outcome) Watch {
	now := time.Now()
	reset := func(t *time.Time) { *t = now.Add(t.Sub(now)).In(t.Location()) } // what has passed, by the clock that nobody sets
	w.Last, w.Fights = slices.Clone(w.Last), slices.Clone(w.Fights)
	times := []*time.Time{&w.Since, &w.LastRound, &r.Started}
	for i := range w.Last {
		times = append(times, &w.Last[i].Time)
	}
	for i := range w.Fights {
		times = append(times, &w.Fights[i].Since, &w.Fights[i].Next)
	}
	for _, t := range times {
		if !t.IsZero() {
			reset(t)
		}
	}
	return Watch{APIVersion, KindWatch, w, now.UTC(), New(h, p, r)}
}

// DecodeWatch reads what JSON wrote of a Watch.
func DecodeWatch(text []byte) (Watch, error) {
	var d Watch
	if err := json.Unmarshal(text, &d); err != nil {
		return d, fmt.Errorf("this is not what watch writes: %w", err)
	}
	if d.Kind != KindWatch || d.APIVersion != APIVersion {
		return d, fmt.Errorf("this is %q of %q, not %q of %q", d.Kind, d.APIVersion, KindWatch, APIVersion)
	}
	return d, d.Report.check()
}

// roundSlack is what a round may take beyond the interval.
const roundSlack = 30 * time.Second

// Late returns nil while rounds are on time. If two rounds are missing, the report
// may no longer be true.
func (w Watching) Late(now time.Time) error {
	if w.LastRound.IsZero() {
		return errors.New("the first round is not over")
	}
	if ahead := w.LastRound.Sub(now); ahead > roundSlack {
		return fmt.Errorf("the last round was %s in the future: somebody set the clock", ahead.Round(time.Second))
	}
	if ago := now.Sub(w.LastRound); ago > 3*w.Interval+roundSlack {
		return fmt.Errorf("the last round was %s ago, and one is due every %s", ago.Round(time.Second), w.Interval)
	}
	return nil
}

// Verdict returns the node's verdict: unknown if watch is late.
func (d Watch) Verdict(now time.Time) verdict.Verdict {
	if d.Late(now) != nil {
		return verdict.Unknown
	}
	return d.Report.Verdict
}
