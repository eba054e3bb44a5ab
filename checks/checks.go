// Package checks defines requirements and the three loops that run them: Inspect, Apply and Until.
// The requirements themselves are in the packages below it, by subject; package catalog lists them
// all.
package checks

import (
	"context"
	"slices"
	"time"

	"nodegate/internal/host"
	"nodegate/internal/host/config"
	"nodegate/internal/verdict"
	"nodegate/policy"
)

// Check is one requirement. Inspect never changes the host.
type Check interface {
	// Name is stable, lower case and greppable: sysctl.net.ipv4.ip_forward.
	Name() string
	Metadata() policy.Metadata
	// Inspect returns an error only if it could not determine the state. A host with a fault yields
	// a State that does not pass.
	Inspect(context.Context, *host.Host) (State, error)
}

// State is the result of an inspection. The zero value does not pass.
type State struct {
	Want, Got string // canonical text, comparable between nodes
	Pass      bool
	Minor     bool       // it blocks nothing, whatever its severity: another program may mend it, or the fault is elsewhere
	Skip      string     // why the requirement does not apply here, or ""
	Remedy    string     // what the operator should do if it does not pass
	Cause     string     // name of the check whose failure explains this one, or ""
	Evidence  []Evidence // the observations behind the verdict
	Stuck     string     // the part of Got that Changes do not correct, or ""
	Changes   []Change   `json:"-"` // the changes that apply makes, in this order; none if apply cannot fix it
}

// Texts returns the texts of the state that may repeat words of files.
func (s *State) Texts() []*string {
	s.Evidence = slices.Clone(s.Evidence)
	all := []*string{&s.Want, &s.Got, &s.Skip, &s.Remedy, &s.Stuck}
	for i := range s.Evidence {
		all = append(all, &s.Evidence[i].Source, &s.Evidence[i].Text)
	}
	return all
}

// Passing returns a state that passes: Got equals Want.
func Passing(want string, evidence ...Evidence) State {
	return State{Want: want, Got: want, Pass: true, Evidence: evidence}
}

// Differs marks the state as not passing.
func (s *State) Differs(got, remedy string) {
	s.Pass, s.Got, s.Remedy = false, got, remedy
}

// Evidence is one observation: its source and the text found there.
type Evidence = host.Evidence

// Seen returns an observation.
func Seen(source, text string) Evidence { return Evidence{Source: source, Text: text} }

// SeenRule returns a rule of the packet filter, which only root may read, without the text that another program put into it.
func SeenRule(source, rule string) Evidence { return Seen(source, config.PlainRules(rule)) }

// Change is one write that apply makes and plan shows.
type Change struct {
	What        string // the thing that is written: "net.ipv4.ip_forward", "eth0 mtu"
	From, To    string
	Kind        ChangeKind
	Target      string          // the module, the parameter's path, the link; "" if the writes are known only after Make
	AlsoWritten func() []Change // set after Make: other writes, and values that the kernel changes along with this one
	Note        string          // what else plan prints about it, or ""
	Kept        func() string   // set after Make: the value that the kernel stored, "" if unknown; nil means To
	Failed      string          // the remedy if the change was made and did not help; "" means the state's remedy
	Make        func(context.Context, *host.Host) error
}

// Stored returns the value that the kernel stored when the change was made.
func (c Change) Stored() string {
	if c.Kept != nil && c.Kept() != "" {
		return c.Kept()
	}
	return c.To
}

// ChangeKind is the kind of setting that a change writes.
type ChangeKind string

// The kinds of changes. A setting of a link has its kind in the policy; From and To of all but a scalar are lists: "gro=on, gso=off".
const (
	LoadModule    ChangeKind = "module"
	SetSysctl     ChangeKind = "sysctl"
	SetSysfs      ChangeKind = "sysfs"
	SetFeatures              = ChangeKind(policy.Offload)
	DeleteAddress ChangeKind = "address" // the kernel did it along with another change
)

// IsList reports whether From and To of a change are lists of names with values.
func (k ChangeKind) IsList() bool {
	return !slices.Contains([]ChangeKind{LoadModule, SetSysctl, SetSysfs, DeleteAddress}, k) && !policy.LinkKind(k).IsScalar()
}

// Result is a check's name, its verdict and the facts behind the verdict.
type Result struct {
	Name     string
	Metadata policy.Metadata
	Verdict  verdict.Verdict
	State    State
	Err      error  // why the verdict is unknown, or why a change failed
	Fixed    bool   // it did not pass before the changes, and passes now
	Was      string // the value before the fix
	Made     []Change
	Announce bool   // the gate prints it if it does not pass, although it holds nothing
	Follows  string // the check that must pass first: State.Cause, even if that was dropped because the cause only warns
}

// IsSymptom reports whether the result is only the consequence of another result.
func (r Result) IsSymptom() bool {
	return r.State.Cause != "" && !r.Verdict.Fine()
}

// Differs reports whether the host is known not to meet the requirement.
func (r Result) Differs() bool { return r.Verdict == verdict.Fail || r.Verdict == verdict.Warn }

// Outcome is the results of one run, in the order of the checks.
type Outcome struct {
	Started  time.Time
	Duration time.Duration
	Stage    Stage
	Results  []Result
}

// Verdict returns the verdict on the node: Fail if a blocking requirement fails, Unknown if the
// state of a blocking one could not be determined, otherwise Pass.
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

// Applying returns the number of results that are not skipped.
func (r Outcome) Applying() int {
	n := 0
	for _, res := range r.Results {
		if res.Verdict != verdict.Skipped {
			n++
		}
	}
	return n
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
