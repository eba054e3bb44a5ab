package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"

	"nodegate/checks"
)

// writeText is the report for people: what fails first, with why, where it is
// asked for and what to do; what only follows from it in one line each; then
// what was fixed; what holds only as a number, or in full with -v.
func writeText(w io.Writer, d document, paint paint, verbose bool) error {
	t := text{paint: paint, verbose: verbose}
	for _, r := range d.Results {
		t.width = max(t.width, len(r.Name))
	}
	for _, v := range []checks.Verdict{checks.Fail, checks.Unknown, checks.Warn} {
		for _, r := range d.Results {
			if r.Verdict == v && r.Because == "" {
				t.broken(r)
				t.followers(d.Results, r.Name)
			}
		}
	}
	for _, r := range d.Results {
		switch {
		case r.Fixed:
			t.line(green, "fixed", r.Name, r.Was+" -> "+r.Got)
		case verbose && r.Verdict == checks.Pass:
			t.line(green, "ok", r.Name, r.Got)
			t.evidence(r)
		case verbose && r.Verdict == checks.Skip:
			t.line(dim, "skip", r.Name, r.Skipped)
		}
	}
	t.total(d)
	_, err := t.WriteTo(w)
	return err
}

type text struct {
	bytes.Buffer
	paint   paint
	verbose bool
	width   int
}

func (t *text) line(colour, word, name, what string) {
	fmt.Fprintf(t, "%s %-*s  %s\n", t.paint(colour, fmt.Sprintf("%-7s", word)), t.width, name, what)
}

func (t *text) broken(r result) {
	switch r.Verdict {
	case checks.Unknown:
		t.line(yellow, "UNKNOWN", r.Name, "could not tell")
	case checks.Warn:
		t.line(yellow, "warn", r.Name, "want "+r.Want+", got "+r.Got)
	default:
		t.line(red, "FAIL", r.Name, "want "+r.Want+", got "+r.Got)
	}
	t.detail("error", r.Error)
	t.detail("why", r.Reason)
	t.detail("policy", r.Source)
	t.detail("do", r.Remedy)
	t.detail("see", r.Ref)
	t.evidence(r)
}

func (t *text) detail(word, what string) {
	if what != "" {
		fmt.Fprintf(t, "        %s %s\n", t.paint(dim, fmt.Sprintf("%-7s", word)), what)
	}
}

func (t *text) evidence(r result) {
	if !t.verbose {
		return
	}
	for _, e := range r.Evidence {
		t.detail("saw", e.Source+": "+e.Text)
	}
}

// followers is what a failure explains, and what that explains in turn.
func (t *text) followers(all []result, cause string) {
	for _, r := range all {
		if r.Because == cause {
			t.line(dim, "", r.Name, t.paint(dim, "because "+cause+" does not hold"))
			t.followers(all, r.Name)
		}
	}
}

func (t *text) total(d document) {
	n := map[checks.Verdict]int{}
	follow := 0
	for _, r := range d.Results {
		if r.Because != "" {
			follow++
			continue
		}
		n[r.Verdict]++
	}
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{
		{n[checks.Fail], "fail"}, {follow, "because of these"}, {n[checks.Unknown], "unknown"}, {n[checks.Warn], "warn"},
		{n[checks.Pass], "ok"}, {n[checks.Skip], "skipped"},
	} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	word, colour := "holds", green
	switch d.Verdict {
	case checks.Fail:
		word, colour = "differs", red
	case checks.Unknown:
		word, colour = "could not tell", yellow
	}
	took := d.report.Duration.Round(10 * time.Microsecond)
	fmt.Fprintf(t, "%s: %s  (stage %s, %s, %s)\n", t.paint(bold, "nodegate"), t.paint(colour, word), d.Stage, strings.Join(parts, ", "), took)
}
