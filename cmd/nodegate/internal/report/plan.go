package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/internal/verdict"
	"nodegate/policy"
)

// Plan lists the changes that apply would make.
type Plan struct {
	checked, applying       int
	change, manual, unknown []checks.Result
	writes                  int             // of change
	follow                  []checks.Result // will pass as a consequence of another requirement's change
}

// NewPlan sorts the results of an inspection by the action that apply would take. Apply cannot
// fix a symptom if it cannot fix the cause.
func NewPlan(r checks.Outcome) Plan {
	p := Plan{checked: len(r.Results), applying: r.Applying()}
	stuck, changed := map[string]bool{}, map[string]bool{}
	for _, res := range r.Results {
		switch {
		case res.Verdict == verdict.Unknown:
			p.unknown = append(p.unknown, res)
		case res.Verdict == verdict.Pass || res.Verdict == verdict.Skipped:
			continue
		case len(res.State.Changes) > 0 && !stuck[res.Follows]:
			p.change = append(p.change, res)
			p.writes += len(res.State.Changes)
			changed[res.Name] = true
			if res.State.Stuck == "" {
				continue
			}
			res.State.Got = res.State.Stuck
			p.manual = append(p.manual, res)
		case len(res.State.Changes) == 0 && changed[res.Follows]:
			p.follow = append(p.follow, res)
			changed[res.Name] = true
			continue
		default:
			p.manual = append(p.manual, res)
		}
		stuck[res.Name] = true
	}
	return p
}

// Call completes the nodegate commands in a text with the flags of this call that choose the policy, the tree and the stage. The
// commands that a report recommends need the same flags, or they would use another policy. Nil leaves the text as it is.
type Call func(text string) string

func (c Call) repeat(text string) string {
	if c == nil || !strings.Contains(text, "`nodegate ") {
		return text
	}
	return c(text)
}

// Repeat adds the flags of c to the nodegate commands in the remedies of the report.
func (r *Report) Repeat(c Call) {
	for i := range r.Results {
		r.Results[i].Remedy = c.repeat(r.Results[i].Remedy)
	}
}

// Next returns the recommended next step after a check, or "" if apply would change
// nothing.
func (p Plan) Next(c Call) string {
	n, rest := len(p.change)+len(p.follow), len(p.manual)
	for _, res := range p.unknown {
		if res.State.Remedy != "" {
			rest++
		}
	}
	if n == 0 {
		return ""
	}
	next := c.repeat(fmt.Sprintf("`nodegate apply` fixes %d of these now, `nodegate install` keeps them across reboots; "+
		"`nodegate plan` shows the changes", n))
	if rest > 0 {
		next += fmt.Sprintf("; for the other %d, follow their remedies", rest)
	}
	return next
}

// Verdict returns Pass if neither apply nor the operator has anything to change.
func (p Plan) Verdict() verdict.Verdict {
	switch {
	case len(p.unknown) > 0:
		return verdict.Unknown
	case len(p.change)+len(p.manual) > 0:
		return verdict.Fail
	}
	return verdict.Pass
}

// Text writes the old and new value of each change, and then the requirements that apply cannot fix.
func (p Plan) Text(w io.Writer, paint Paint, call Call) error {
	t := text{paint: paint}
	for _, list := range [][]checks.Result{p.change, p.follow, p.manual, p.unknown} {
		for _, res := range list {
			t.width = max(t.width, len(res.Name))
		}
	}
	for _, res := range p.change {
		after := ""
		if res.State.Cause != "" {
			after = paint(Dim, " after "+res.State.Cause)
		}
		if name, is := strings.CutPrefix(res.Name, "sysctl."); is {
			if key, err := policy.ParseKey(name); err == nil && key.IsOwnOfPods() {
				after += paint(Dim, " (hostNetwork only, not Pods)")
			}
		}
		for _, d := range differences(res) {
			what := ""
			if d.what != "" {
				what = d.what + ": "
			}
			t.writeRow("  "+paint(Yellow, "~"), res.Name, what+paint(Red, d.from)+" -> "+paint(Green, d.to)+d.note+after)
		}
	}
	for _, res := range p.follow {
		t.writeRow("  "+paint(Yellow, "~"), res.Name,
			paint(Red, res.State.Got)+" -> "+paint(Green, res.State.Want)+paint(Dim, " by "+res.Follows))
	}
	if len(p.manual) > 0 {
		fmt.Fprintln(&t, "apply cannot fix:")
	}
	for _, res := range p.manual {
		do := call.repeat(res.State.Remedy)
		if res.IsSymptom() {
			do = "because of " + res.State.Cause
		}
		t.writeRow("  "+paint(Red, "!"), res.Name, fmt.Sprintf("%s, wants %s; %s", res.State.Got, res.State.Want, do))
	}
	if len(p.unknown) > 0 {
		fmt.Fprintln(&t, "could not determine:")
	}
	for _, res := range p.unknown {
		t.writeRow("  "+paint(Yellow, "?"), res.Name, verdict.Unknown.String()+": "+OneLine(res.Err.Error()))
	}
	var parts []string
	writes := ""
	// A glob, or a link with several settings, is one change in several writes.
	if p.writes > len(p.change) {
		writes = fmt.Sprintf(" in %d writes", p.writes)
	}
	switch n := len(p.change); {
	case n == 1:
		parts = append(parts, call.repeat("1 change"+writes+"; run `nodegate apply` to make it"))
	case n > 1:
		parts = append(parts, call.repeat(fmt.Sprintf("%d changes%s; run `nodegate apply` to make them", n, writes)))
	case p.applying == 0 && p.checked > 0:
		parts = append(parts, "no change: "+NoneApplies(p.checked))
	default:
		parts = append(parts, fmt.Sprintf("no change: %s checked", Count(p.checked, "requirement")))
	}
	if n := len(p.manual); n > 0 {
		parts = append(parts, fmt.Sprintf("%d to fix manually", n))
	}
	if n := len(p.unknown); n > 0 {
		parts = append(parts, fmt.Sprintf("%d unknown", n))
	}
	fmt.Fprintln(&t, strings.Join(parts, "; "))
	_, err := t.WriteTo(w)
	return err
}

// difference is one attribute that apply would change.
type difference struct{ what, from, to, note string }

// differences returns the attributes that the changes of a result write. The result of a link or of a glob names each
// interface or parameter.
func differences(res checks.Result) []difference {
	all := res.State.Changes
	single := []checks.ChangeKind{checks.SetSysctl, checks.SetSysfs, checks.LoadModule}
	if len(all) == 1 && slices.Contains(single, all[0].Kind) && res.State.Stuck == "" {
		return []difference{{from: res.State.Got, to: res.State.Want}}
	}
	var list []difference
	for _, c := range all {
		note := ""
		if c.Note != "" {
			note = " (" + c.Note + ")"
		}
		if !c.Kind.IsList() {
			list = append(list, difference{c.What, c.From, c.To, note})
			continue
		}
		of := c.Target + " "
		if c.Kind != checks.SetFeatures {
			of += string(c.Kind) + " "
		}
		to := strings.Split(c.To, ", ")
		for i, from := range strings.Split(c.From, ", ") {
			name, was, _ := strings.Cut(from, "=")
			_, now, _ := strings.Cut(to[i], "=")
			list = append(list, difference{of + name, was, now, note})
		}
	}
	return list
}
