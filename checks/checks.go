// Package checks holds what can be required of a node, one requirement a file,
// and the two loops that run them.
package checks

import (
	"context"
	"time"

	"nodegate/internal/host"
	"nodegate/policy"
)

// Check is one requirement. Inspect never changes the host.
type Check interface {
	// Name is stable, lower case and greppable: sysctl.net.ipv4.ip_forward.
	Name() string
	Metadata() policy.Metadata
	// Inspect answers an error only where it could not tell; a host that is
	// wrong is a State that does not hold.
	Inspect(context.Context, *host.Host) (State, error)
}

// Fixer is a check that can make its requirement hold.
type Fixer interface {
	Check
	// Fix changes the host. It is called after every check was inspected, in
	// the order of the checks; the check is inspected again afterwards.
	Fix(context.Context, *host.Host) error
}

// State is what an inspection found. The zero value does not hold.
type State struct {
	Want, Got string // canonical text, comparable between nodes
	Pass      bool
	Skip      string     // why the requirement does not apply here, if so
	Remedy    string     // what a person should do, where it does not hold
	Cause     string     // name of the check whose failure explains this one
	Evidence  []Evidence // what the answer rests on
}

// Evidence is one observation: where, and what was there.
type Evidence struct {
	Source string `json:"source"`
	Text   string `json:"text"`
}

// Verdict is the outcome of a check. The zero value is unknown: it never passes.
type Verdict int

// The verdicts. Warn is a requirement of severity warn that does not hold.
const (
	Unknown Verdict = iota
	Pass
	Warn
	Fail
	Skip
)

func (v Verdict) String() string {
	return [...]string{"unknown", "pass", "warn", "fail", "skip"}[v]
}

// MarshalText spells a verdict in JSON.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// Result is a check's name, its verdict, and what the verdict rests on.
type Result struct {
	Name     string
	Metadata policy.Metadata
	Verdict  Verdict
	State    State
	Err      error  // why the verdict is unknown, or why a fix did not work
	Fixed    bool   // it did not hold, and does now
	Was      string // what a fixed requirement read before
	Fixable  bool   // apply knows how
}

// Follows tells whether the result is only the consequence of another one.
func (r Result) IsSymptom() bool {
	return r.State.Cause != "" && r.Verdict != Pass && r.Verdict != Skip
}

// Report is the results of one run, in the order of the checks.
type Report struct {
	Started  time.Time
	Duration time.Duration
	Stage    Stage
	Results  []Result
}

// Verdict is the verdict on the node: Fail where a blocking requirement does
// not hold, Unknown where it is not known whether one does, else Pass.
func (r Report) Verdict() Verdict {
	verdict := Pass
	for _, res := range r.Results {
		switch {
		case res.Verdict == Fail:
			return Fail
		case res.Verdict == Unknown && res.Metadata.Severity == policy.Block:
			verdict = Unknown
		}
	}
	return verdict
}

// Stage is the point in a node's life that a check is for.
type Stage string

// The stages. An image is a file tree at bake time, boot is before kubelet
// starts, run is a node with its CNI and kube-proxy up.
const (
	Image Stage = "image"
	Boot  Stage = "boot"
	Run   Stage = "run"
	All   Stage = "all"
)
