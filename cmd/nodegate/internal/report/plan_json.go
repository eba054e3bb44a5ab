package report

import (
	"nodegate/checks"
	"nodegate/internal/verdict"
)

// PlanDocument is a plan as other tools read it.
type PlanDocument struct {
	APIVersion string          `json:"apiVersion"` // nodegate/v1
	Kind       string          `json:"kind"`       // Plan
	Node       Node            `json:"node"`       // the machine
	Policy     Policy          `json:"policy"`     // the source of the requirements
	Stage      string          `json:"stage"`      // image, boot, run or all
	Verdict    verdict.Verdict `json:"verdict"`    // pass if nothing differs, fail if something does, or unknown
	Changes    []PlannedChange `json:"changes"`    // what apply would write, in this order
	Manual     []Unplanned     `json:"manual"`     // differences that apply cannot correct
	Unknown    []Unplanned     `json:"unknown"`    // requirements whose state could not be determined
}

// PlannedChange is one value that apply would write, or that follows from another change.
type PlannedChange struct {
	Name    string `json:"name"`              // of the check
	Target  string `json:"target,omitempty"`  // the setting, if the check has several
	From    string `json:"from"`              // the value now
	To      string `json:"to"`                // the value after apply
	Source  string `json:"source"`            // file and line of the requirement
	Because string `json:"because,omitempty"` // the change that this one follows from
}

// Unplanned is a requirement that does not pass and that apply would not correct.
type Unplanned struct {
	Name   string `json:"name"`             // of the check
	Want   string `json:"want,omitempty"`   // the required state
	Got    string `json:"got,omitempty"`    // the state found
	Remedy string `json:"remedy,omitempty"` // what to do
	Error  string `json:"error,omitempty"`  // why the state is unknown
	Source string `json:"source"`           // file and line of the requirement
}

// Document returns the plan of a report's machine.
func (p Plan) Document(r Report, call Call) PlanDocument {
	d := PlanDocument{APIVersion: APIVersion, Kind: "Plan", Node: r.Node, Policy: r.Policy, Stage: r.Stage, Verdict: p.Verdict(),
		Changes: []PlannedChange{}, Manual: []Unplanned{}, Unknown: []Unplanned{}}
	for _, res := range p.change {
		for _, one := range differences(res) {
			d.Changes = append(d.Changes, PlannedChange{Name: res.Name, Target: one.what, From: one.from, To: one.to, Source: res.Metadata.Source()})
		}
	}
	for _, res := range p.follow {
		d.Changes = append(d.Changes, PlannedChange{Name: res.Name, From: res.State.Got, To: res.State.Want, Source: res.Metadata.Source(),
			Because: res.Follows})
	}
	for _, res := range p.manual {
		d.Manual = append(d.Manual, unplanned(res, call))
	}
	for _, res := range p.unknown {
		u := Unplanned{Name: res.Name, Error: OneLine(res.Err.Error()), Source: res.Metadata.Source()}
		d.Unknown = append(d.Unknown, u)
	}
	return d
}

func unplanned(res checks.Result, call Call) Unplanned {
	s := res.State
	return Unplanned{Name: res.Name, Want: s.Want, Got: s.Got, Remedy: call.repeat(s.Remedy), Source: res.Metadata.Source()}
}
