package report

import (
	"fmt"
	"io"
	"strings"

	"nodegate/checks"
	"nodegate/internal/verdict"
)

// Plan is what apply would do about a report.
type Plan struct {
	checked                 int
	change, byHand, unknown []checks.Result
	follow                  []checks.Result // pass when a change is made that another one asks for
}

// NewPlan sorts what an inspection found by what apply would do about it. It cannot
// mend the consequence of what it cannot mend.
func NewPlan(r checks.Outcome) Plan {
	p := Plan{checked: len(r.Results)}
	stuck, changed := map[string]bool{}, map[string]bool{}
	for _, res := range r.Results {
		switch {
		case res.Verdict == verdict.Unknown:
			p.unknown = append(p.unknown, res)
		case res.Verdict == verdict.Pass || res.Verdict == verdict.Skipped:
			continue
		case len(res.State.Changes) > 0 && !stuck[res.Follows]:
			p.change = append(p.change, res)
			changed[res.Name] = true
			continue
		case len(res.State.Changes) == 0 && changed[res.Follows]:
			p.follow = append(p.follow, res)
			changed[res.Name] = true
			continue
		default:
			p.byHand = append(p.byHand, res)
		}
		stuck[res.Name] = true
	}
	return p
}

// Call is the flags of a call that decide what is checked, as the calls that it
// recommends need them: without them these are about another policy.
type Call struct {
	Policy string // " --policy my.hcl"
	Stage  string // " --stage run", which install does not have
}

// repeat returns a remedy in which the calls of nodegate have the flags.
func (c Call) repeat(remedy string) string {
	if !strings.Contains(remedy, "nodegate ") {
		return remedy
	}
	return strings.NewReplacer(
		"nodegate apply", "nodegate apply"+c.Policy+c.Stage,
		"nodegate install", "nodegate install"+c.Policy,
	).Replace(remedy)
}

// Repeat makes the calls in the remedies of a report those for this call's policy.
func (r *Report) Repeat(c Call) {
	if c == (Call{}) {
		return
	}
	for i := range r.Results {
		r.Results[i].Remedy = c.repeat(r.Results[i].Remedy)
	}
}

// Next returns what a person does after a check, "" where each result says it
// itself.
func (p Plan) Next(c Call) string {
	n, rest := len(p.change)+len(p.follow), len(p.byHand)+len(p.unknown)
	if n == 0 {
		return ""
	}
	flags := c.Policy + c.Stage
	next := fmt.Sprintf("nodegate apply%s changes %d of these; nodegate plan%s shows how", flags, n, flags)
	if rest > 0 {
		next += fmt.Sprintf("; %d more: do what it says", rest)
	}
	return next
}

// Verdict returns Pass if neither apply nor a person has anything to change.
func (p Plan) Verdict() verdict.Verdict {
	switch {
	case len(p.unknown) > 0:
		return verdict.Unknown
	case len(p.change)+len(p.byHand) > 0:
		return verdict.Fail
	}
	return verdict.Pass
}

// Text writes old and new of each change, and below it what apply cannot change.
func (p Plan) Text(w io.Writer, paint Paint, call Call) error {
	t := text{paint: paint}
	for _, list := range [][]checks.Result{p.change, p.follow, p.byHand, p.unknown} {
		for _, res := range list {
			t.width = max(t.width, len(res.Name))
		}
	}
	for _, res := range p.change {
		t.row("  "+paint(Yellow, "~"), res.Name, paint(Red, res.State.Got)+" -> "+paint(Green, res.State.Want))
	}
	for _, res := range p.follow {
		t.row("  "+paint(Yellow, "~"), res.Name,
			paint(Red, res.State.Got)+" -> "+paint(Green, res.State.Want)+paint(Dim, " by "+res.Follows))
	}
	if len(p.byHand) > 0 {
		fmt.Fprintln(&t, "what apply cannot change:")
	}
	for _, res := range p.byHand {
		do := call.repeat(res.State.Remedy)
		if res.IsSymptom() {
			do = "because of " + res.State.Cause
		}
		t.row("  "+paint(Red, "!"), res.Name, fmt.Sprintf("%s, wants %s; %s", res.State.Got, res.State.Want, do))
	}
	if len(p.unknown) > 0 {
		fmt.Fprintln(&t, "what could not be told:")
	}
	for _, res := range p.unknown {
		t.row("  "+paint(Yellow, "?"), res.Name, verdict.Unknown.String()+": "+OneLine(res.Err.Error()))
	}
	var parts []string
	switch n := len(p.change); {
	case n == 1:
		parts = append(parts, call.repeat("1 change; run `nodegate apply` to make it"))
	case n > 1:
		parts = append(parts, call.repeat(fmt.Sprintf("%d changes; run `nodegate apply` to make them", n)))
	default:
		parts = append(parts, fmt.Sprintf("no change: %s checked", Count(p.checked, "requirement")))
	}
	if n := len(p.byHand); n > 0 {
		parts = append(parts, fmt.Sprintf("%d for you: apply cannot make them pass", n))
	}
	if n := len(p.unknown); n > 0 {
		parts = append(parts, fmt.Sprintf("%d unknown", n))
	}
	fmt.Fprintln(&t, strings.Join(parts, "; "))
	_, err := t.WriteTo(w)
	return err
}
