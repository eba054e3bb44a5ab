package fleet

import (
	"io"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/verdict"
)

// JSON writes the table for other tools. Fields are added, never renamed.
func JSON(w io.Writer, f Fleet) error {
	d := jsonFleet{APIVersion: report.APIVersion, Kind: "FleetReport", Verdict: f.Verdict(),
		Nodes: append([]Member{}, f.Nodes...), Checks: []jsonCheck{}, Groups: []jsonGroup{}}
	for _, c := range f.Checks {
		out := jsonCheck{Name: c.Name, Severity: c.Severity, Difference: c.Kind.String(), Because: c.Because, Remedy: c.Remedy}
		for i, s := range c.States {
			state := jsonState{Verdict: s.Verdict.String(), Got: s.Got, Count: len(s.Nodes)}
			if s.NotAsked {
				state.Verdict = ""
			}
			if i > 0 || c.Kind == Wrong && len(c.States) > 1 {
				state.Nodes = f.list(s.Nodes)
			}
			out.States = append(out.States, state)
		}
		d.Checks = append(d.Checks, out)
	}
	for _, g := range f.Groups {
		out := jsonGroup{Nodes: f.list(g.Nodes), Differs: []string{}}
		for _, i := range g.Differs {
			out.Differs = append(out.Differs, f.Checks[i].Name)
		}
		d.Groups = append(d.Groups, out)
	}
	return report.JSON(w, d)
}

type jsonFleet struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Verdict    verdict.Verdict `json:"verdict"`
	Nodes      []Member        `json:"nodes"`
	Checks     []jsonCheck     `json:"checks"`
	Groups     []jsonGroup     `json:"groups"` // of nodes that are alike
}

type jsonCheck struct {
	Name       string      `json:"name"`
	Severity   string      `json:"severity,omitempty"`
	Difference string      `json:"difference"` // verdict, value, wrong, follows, varies, alike
	Because    string      `json:"because,omitempty"`
	Remedy     string      `json:"remedy,omitempty"`
	States     []jsonState `json:"states"` // what most nodes have comes first
}

type jsonState struct {
	Verdict string   `json:"verdict"` // "" is nodes that were not asked
	Got     string   `json:"got"`
	Count   int      `json:"count"`
	Nodes   []string `json:"nodes,omitempty"` // not of what most have
}

type jsonGroup struct {
	Nodes   []string `json:"nodes"`
	Differs []string `json:"differs"` // the checks in which they are not as most
}

func (f Fleet) list(nodes []int) []string {
	names := []string{}
	for _, n := range nodes {
		names = append(names, f.Nodes[n].Name)
	}
	return names
}
