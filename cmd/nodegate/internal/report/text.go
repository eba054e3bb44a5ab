package report

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"nodegate/internal/verdict"
)

// Text writes the report for people: failures first, each with its reason, its
// place in the policy and its remedy; symptoms of a failure in one line each; then
// what was fixed. Passes are only counted, or listed if verbose is set.
func (r Report) Text(w io.Writer, paint Paint, verbose bool) error {
	t := text{paint: paint, verbose: verbose}
	for _, res := range r.Results {
		t.width = max(t.width, len(res.Name))
	}
	for _, v := range []verdict.Verdict{verdict.Fail, verdict.Unknown, verdict.Warn} {
		for _, res := range r.Results {
			if res.Verdict == v && res.Because == "" {
				t.broken(res)
				t.symptoms(r.Results, res.Name, map[string]bool{})
			}
		}
	}
	for _, res := range r.Results {
		switch {
		case res.Fixed:
			t.line(Green, "fixed", res.Name, res.Was+" -> "+res.Got)
		case verbose && res.Verdict.Fine():
			t.verdict(res.Verdict, res.Name, res.Observed())
			t.evidence(res)
		}
	}
	if r.Next != "" {
		fmt.Fprintf(&t, "%s    %s\n", paint(Bold, "next"), r.Next)
	}
	t.total(r)
	_, err := t.WriteTo(w)
	return err
}

// Total writes the last line of a text: the verdict, and in brackets its subject.
func Total(w io.Writer, paint Paint, v verdict.Verdict, about string) error {
	_, err := fmt.Fprintf(w, "%s: %s  (%s)\n", paint(Bold, "nodegate"), paint.Verdict(v, v.String()), about)
	return err
}

// Total writes the last line of the report's text alone.
func (r Report) Total(w io.Writer, paint Paint) error {
	t := text{paint: paint}
	t.total(r)
	_, err := t.WriteTo(w)
	return err
}

// text is a text in columns: a word, a name, and what there is to say.
type text struct {
	bytes.Buffer
	paint   Paint
	verbose bool
	width   int // of the names
}

func (t *text) verdict(v verdict.Verdict, name, what string) {
	t.row(t.paint.Verdict(v, fmt.Sprintf("%-7s", v.String())), name, what)
}

func (t *text) line(colour, word, name, what string) {
	t.row(t.paint(colour, fmt.Sprintf("%-7s", word)), name, what)
}

func (t *text) row(word, name, what string) {
	fmt.Fprintf(t, "%s %-*s  %s\n", word, t.width, name, OneLine(what))
}

func (t *text) broken(r Result) {
	if r.Verdict == verdict.Unknown {
		t.verdict(r.Verdict, r.Name, r.Error)
	} else {
		t.verdict(r.Verdict, r.Name, "want "+r.Want+", got "+r.Got)
		t.detail("error", r.Error)
	}
	t.detail("why", r.Reason)
	t.detail("policy", r.Source)
	t.detail("do", r.Remedy)
	t.detail("see", r.Ref)
	t.evidence(r)
}

func (t *text) detail(word, what string) {
	if what != "" {
		fmt.Fprintf(t, "        %s %s\n", t.paint(Dim, fmt.Sprintf("%-7s", word)), OneLine(what))
	}
}

func (t *text) evidence(r Result) {
	if !t.verbose {
		return
	}
	for _, e := range r.Evidence {
		t.detail("saw", e.Source+": "+e.Text)
	}
}

// symptoms lists what a failure explains, and what that explains in turn, each once: a report that another machine wrote may go in circles.
func (t *text) symptoms(all []Result, cause string, listed map[string]bool) {
	listed[cause] = true
	for _, r := range all {
		if r.Because == cause && !listed[r.Name] {
			t.line(Dim, "", r.Name, t.paint(Dim, "because of "+cause))
			t.symptoms(all, r.Name, listed)
		}
	}
}

func (t *text) total(r Report) {
	n := map[verdict.Verdict]int{}
	symptoms := 0
	for _, res := range r.Results {
		if res.Because != "" {
			symptoms++
			continue
		}
		n[res.Verdict]++
	}
	parts := []string{"stage " + r.Stage}
	for _, v := range verdict.All() {
		if n[v] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[v], v.String()))
		}
		if v == verdict.Fail && symptoms > 0 {
			parts = append(parts, fmt.Sprintf("%d because of these", symptoms))
		}
	}
	if r.Policy.Enforce != "" {
		parts = append(parts, "enforce "+r.Policy.Enforce+": nothing is held")
	}
	_ = Total(t, t.paint, r.Verdict, strings.Join(append(parts, r.duration().String()), ", "))
}
