package fleet

import (
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/verdict"
)

// NewDocument returns the JSON of the table, for other tools. Fields are added, never renamed.
func NewDocument(f Fleet) Document {
	d := Document{APIVersion: report.APIVersion, Kind: "FleetReport", Verdict: f.Verdict(),
		Nodes: append([]Member{}, f.Nodes...), Checks: []jsonCheck{}, Groups: []jsonGroup{}}
	for _, c := range f.Checks {
		out := jsonCheck{Name: c.Name, Severity: c.Severity, Difference: c.Kind.String(), Because: c.Because, Remedy: c.Remedy}
		for i, s := range c.States {
			state := jsonState{Verdict: s.Verdict.String(), Got: s.Got, Count: len(s.Nodes)}
			if s.NotChecked {
				state.Verdict = ""
			}
			if i > 0 || c.Kind == Wrong && len(c.States) > 1 {
				state.Nodes = f.listNames(s.Nodes)
			}
			out.States = append(out.States, state)
		}
		d.Checks = append(d.Checks, out)
	}
	for _, g := range f.Groups {
		out := jsonGroup{Nodes: f.listNames(g.Nodes), Differs: []string{}}
		for _, i := range g.Differs {
			out.Differs = append(out.Differs, f.Checks[i].Name)
		}
		d.Groups = append(d.Groups, out)
	}
	return d
}

// Document is the JSON of a fleet.
type Document struct {
	APIVersion string          `json:"apiVersion"` // nodegate/v1
	Kind       string          `json:"kind"`       // FleetReport
	Verdict    verdict.Verdict `json:"verdict"`    // the worst of the nodes
	Nodes      []Member        `json:"nodes"`      // one entry for each report
	Checks     []jsonCheck     `json:"checks"`     // outliers first
	Groups     []jsonGroup     `json:"groups"`     // groups of identical nodes
}

type jsonCheck struct {
	Name       string      `json:"name"`               // of the check
	Severity   string      `json:"severity,omitempty"` // block or warn
	Difference string      `json:"difference"`         // verdict, value, wrong, follows, varies, alike
	Because    string      `json:"because,omitempty"`  // the check that explains the failures
	Remedy     string      `json:"remedy,omitempty"`   // of the first node that fails
	States     []jsonState `json:"states"`             // the most common first
}

type jsonState struct {
	Verdict string   `json:"verdict"`         // "" for nodes that were not checked
	Got     string   `json:"got"`             // the value found
	Count   int      `json:"count"`           // nodes with it
	Nodes   []string `json:"nodes,omitempty"` // empty for the majority
}

type jsonGroup struct {
	Nodes   []string `json:"nodes"`   // names
	Differs []string `json:"differs"` // the checks in which they differ from the majority
}

func (f Fleet) listNames(nodes []int) []string {
	names := []string{}
	for _, n := range nodes {
		names = append(names, f.Nodes[n].Name)
	}
	return names
}
