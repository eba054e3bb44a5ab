package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/verdict"
	"nodegate/policy"
)

// Watch is the document that watch writes for other tools. Fields are added,
// never renamed.
type Watch struct {
	APIVersion string `json:"apiVersion"` // nodegate/v1
	Kind       string `json:"kind"`       // Watch
	Watching
	Written time.Time `json:"written"` // when this document was written
	Report  Report    `json:"report"`  // of the last round, updated by later corrections
}

// Watching describes watch's work since its start.
type Watching struct {
	Since       time.Time      `json:"since"`                 // start of watch
	Interval    time.Duration  `json:"intervalNs"`            // between two rounds
	Rounds      int            `json:"rounds"`                // rounds so far
	LastRound   time.Time      `json:"lastRound"`             // end of the last round
	BreakGlass  string         `json:"breakGlass,omitempty"`  // the break-glass in force: nothing is corrected
	PolicyError string         `json:"policyError,omitempty"` // why the current policy files are not in use
	LinkEvents  int            `json:"linkEvents"`            // notices about links
	Resyncs     int            `json:"resyncs"`               // full inspections of all links after missed notifications
	Links       int            `json:"links"`                 // links configured when they appeared
	Corrected   map[string]int `json:"corrected"`             // corrections so far
	Last        []Correction   `json:"last"`                  // the last corrections, newest first
	Fights      []Fight        `json:"fights"`                // requirements that another program keeps changing back
	Audit       *Auditing      `json:"audit,omitempty"`       // set if the policy has an audit block
}

// Correction is one corrected setting.
type Correction struct {
	Time time.Time `json:"time"`           // when it was made
	Name string    `json:"name"`           // the requirement
	Link string    `json:"link,omitempty"` // "" if it is not about a link
	New  bool      `json:"new,omitempty"`  // the link had just appeared; this is not drift
	Was  string    `json:"was"`            // the state before
	Now  string    `json:"now"`            // the state after
}

// Subject returns the corrected requirement, with the link.
func (c Correction) Subject() string {
	if c.Link == "" {
		return c.Name
	}
	return c.Name + " of " + c.Link
}

// Fight is a requirement that another program keeps changing back.
type Fight struct {
	Name   string    `json:"name"`   // of the requirement
	Since  time.Time `json:"since"`  // the first of the corrections
	Next   time.Time `json:"next"`   // the earliest time of the next correction
	Writer string    `json:"writer"` // the likely program, as the machine's files show it
}

// NewWatch returns the document of a watch on h with progress w, policy p and results r. All times follow the current clock, even
// those recorded before the clock was set, so that every age is right.
func NewWatch(h *host.Host, w Watching, p *policy.Policy, r checks.Outcome) Watch {
	now := time.Now()
	reset := func(t *time.Time) { *t = now.Add(t.Sub(now)).In(t.Location()) } // the elapsed time by the monotonic clock
	w.Last, w.Fights = append([]Correction{}, w.Last...), append([]Fight{}, w.Fights...)
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

// DecodeWatch decodes the JSON of a Watch.
func DecodeWatch(text []byte) (Watch, error) {
	var d Watch
	if err := json.Unmarshal(text, &d); err != nil {
		return d, fmt.Errorf("not a document of watch: %w", err)
	}
	if d.Kind == "Report" {
		return d, errors.New("a report of check, not of watch; show it with `nodegate report FILE`")
	}
	if d.Kind != KindWatch || d.APIVersion != APIVersion {
		return d, fmt.Errorf("not a %s %s but %q %q", APIVersion, KindWatch, d.APIVersion, d.Kind)
	}
	return d, d.Report.validate()
}

// roundSlack is the time that a round may take beyond the interval.
const roundSlack = 30 * time.Second

// Late returns nil while rounds are on time. It returns an error once two rounds are
// missing: the report may be outdated.
func (w Watching) Late(now time.Time) error {
	if w.LastRound.IsZero() {
		return errors.New("the first round has not finished")
	}
	if ahead := w.LastRound.Sub(now); ahead > roundSlack {
		return fmt.Errorf("the last round was %s in the future: the clock was set back", ahead.Round(time.Second))
	}
	if ago := now.Sub(w.LastRound); ago > 3*w.Interval+roundSlack {
		return fmt.Errorf("the last round was %s ago; a round is due every %s", ago.Round(time.Second), w.Interval)
	}
	return nil
}

// Supersede makes the verdict unknown if the gate has passed since the last round began.
func (d *Watch) Supersede(passed, now time.Time) {
	if d.Late(now) == nil && passed.After(d.Report.began()) && !passed.After(now) {
		d.Report.Verdict = verdict.Unknown
		d.Report.Results = []Result{{Name: "watch", Error: "the gate has passed since the last round began; the next one is running"}}
	}
}

// Verdict returns the node's verdict: unknown if watch is late.
func (d Watch) Verdict(now time.Time) verdict.Verdict {
	if d.Late(now) != nil {
		return verdict.Unknown
	}
	return d.Report.Verdict
}
