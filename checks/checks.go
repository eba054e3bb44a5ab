// Package checks holds what a requirement is, and the three loops that run
// requirements: Inspect, Apply and Until. The requirements themselves are in the
// packages below it, by subject; package catalog lists them all.
package checks

import (
	"context"
	"time"

	"nodegate/internal/host"
	"nodegate/internal/verdict"
	"nodegate/policy"
)

// Check is one requirement. Inspect never changes the host.
type Check interface {
	// Name is stable, lower case and greppable: sysctl.net.ipv4.ip_forward.
	Name() string
	Metadata() policy.Metadata
	// Inspect returns an error only where it could not tell. A host that is
	// wrong is a State that does not pass.
	Inspect(context.Context, *host.Host) (State, error)
}

// State is what an inspection found. The zero value does not pass.
type State struct {
	Want, Got string // canonical text, comparable between nodes
	Pass      bool
	Skip      string     // why the requirement does not apply here, if so
	Remedy    string     // what a person should do, where it does not pass
	Cause     string     // name of the check whose failure explains this one
	Evidence  []Evidence // the observations behind the verdict
	Changes   []Change   // what apply does about it, in this order; none where only a person can
}

// Passing returns a state that passes: what was found is what is wanted.
func Passing(want string, evidence ...Evidence) State {
	return State{Want: want, Got: want, Pass: true, Evidence: evidence}
}

// Differs makes the state one that does not pass.
func (s *State) Differs(got, remedy string) {
	s.Pass, s.Got, s.Remedy = false, got, remedy
}

// Evidence is one observation: where it was made, and what was found there.
type Evidence = host.Evidence

// Seen returns an observation.
func Seen(source, text string) Evidence { return Evidence{Source: source, Text: text} }

// Change is one write that apply makes and plan shows.
type Change struct {
	What        string // what is written: "net.ipv4.ip_forward", "eth0 mtu"
	From, To    string
	Kind        ChangeKind
	Target      string          // the module, the parameter's path, the link; "" where all that is written shows only when it is made
	AlsoWritten func() []Change // known when it is made: what else was written, and what the kernel changes with it, or would with From
	Failed      string          // what a person should do where it was made and did not help, "" for the state's remedy
	Make        func(context.Context, *host.Host) error
}

// ChangeKind is what a change writes.
type ChangeKind string

// The kinds of changes.
const (
	LoadModule  ChangeKind = "module"
	SetSysctl   ChangeKind = "sysctl"
	SetMTU      ChangeKind = "mtu"
	SetFeatures ChangeKind = "offload" // From and To are lists: "gro=on, gso=off"
)

// Result is a check's name, its verdict, and what the verdict rests on.
type Result struct {
	Name     string
	Metadata policy.Metadata
	Verdict  verdict.Verdict
	State    State
	Err      error  // why the verdict is unknown, or why a change did not work
	Fixed    bool   // it did not pass before, and does now
	Was      string // what a fixed requirement read before
	Made     []Change
	Follows  string // the check without which this one cannot pass: State.Cause, also where that is left out since it only warns
}

// IsSymptom reports whether the result is only the consequence of another one.
func (r Result) IsSymptom() bool {
	return r.State.Cause != "" && !r.Verdict.Fine()
}

// Differs reports whether the host is known not to be as the requirement wants it.
func (r Result) Differs() bool { return r.Verdict == verdict.Fail || r.Verdict == verdict.Warn }

// Outcome is the results of one run, in the order of the checks.
type Outcome struct {
	Started  time.Time
	Duration time.Duration
	Stage    Stage
	Results  []Result
}

// Verdict returns the verdict on the node: Fail if a blocking requirement does not pass, Unknown if that could not be
// determined for one, else Pass.
func (r Outcome) Verdict() verdict.Verdict {
	node := verdict.Pass
	for _, res := range r.Results {
		switch {
		case res.Verdict == verdict.Fail:
			return verdict.Fail
		case res.Verdict == verdict.Unknown && res.Metadata.Severity == policy.Block:
			node = verdict.Unknown
		}
	}
	return node
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
