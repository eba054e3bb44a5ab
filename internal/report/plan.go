package report

import (
	"fmt"
	"io"

	"nodegate/checks"
)

// Plan is what apply would do about a report.
type Plan struct {
	checked                 int
	change, byHand, unknown []checks.Result
}

// NewPlan sorts what an inspection found by what apply would do about it.
func NewPlan(r checks.Report) Plan {
	p := Plan{checked: len(r.Results)}
	for _, res := range r.Results {
		switch {
		case res.Verdict == checks.Unknown:
			p.unknown = append(p.unknown, res)
		case res.Verdict == checks.Pass || res.Verdict == checks.Skip:
		case len(res.State.Changes) > 0:
			p.change = append(p.change, res)
		default:
			p.byHand = append(p.byHand, res)
		}
	}
	return p
}

// Verdict returns Pass if neither apply nor a person has anything to change.
func (p Plan) Verdict() Verdict {
	switch {
	case len(p.unknown) > 0:
		return Unknown
	case len(p.change)+len(p.byHand) > 0:
		return Fail
	}
	return Pass
}

// Text writes old and new of each change, and what apply cannot change.
func (p Plan) Text(w io.Writer, paint Paint) error {
	t := text{paint: paint}
	for _, list := range [][]checks.Result{p.change, p.byHand, p.unknown} {
		for _, res := range list {
			t.width = max(t.width, len(res.Name))
		}
	}
	for _, res := range p.change {
		t.row("  "+paint(Yellow, "~"), res.Name, paint(Red, res.State.Got)+" -> "+paint(Green, res.State.Want))
	}
	for _, res := range p.byHand {
		t.row("  "+paint(Red, "!"), res.Name,
			fmt.Sprintf("%s, wants %s; not apply's to change: %s", res.State.Got, res.State.Want, res.State.Remedy))
	}
	for _, res := range p.unknown {
		t.row("  "+paint(Yellow, "?"), res.Name, Unknown.Word()+": "+OneLine(res.Err.Error()))
	}
	if len(p.change) == 0 {
		fmt.Fprintf(&t, "no change: %s checked\n", Count(p.checked, "requirement"))
	} else {
		fmt.Fprintf(&t, "%s; run `nodegate apply` to make them\n", Count(len(p.change), "change"))
	}
	_, err := t.WriteTo(w)
	return err
}
