package report

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"nodegate/internal/verdict"
)

// Text writes the report for people: failures first, each with its reason, its
// place in the policy and its remedy, unless several share it and Next covers it;
// each symptom of a failure in one line; then the fixed requirements. Passes are
// only counted. With verbose they are listed, and failures have their sources.
func (r Report) Text(w io.Writer, paint Paint, verbose bool) error {
	t := text{paint: paint, verbose: verbose}
	byApply := map[string]int{} // problems by the remedy that Next covers
	for _, res := range r.Results {
		t.width = max(t.width, len(res.Name))
		if r.Next != "" && res.Fixable && res.Because == "" && strings.HasPrefix(res.Remedy, "run `nodegate apply") {
			byApply[res.Remedy]++
		}
	}
	shared := r.sharedErrors()
	for _, v := range []verdict.Verdict{verdict.Fail, verdict.Unknown, verdict.Warn} {
		for _, res := range r.Results {
			if res.Verdict != v || res.Because != "" {
				continue
			}
			if byApply[res.Remedy] > 1 {
				res.Remedy = ""
			}
			if names := shared[res.Error]; len(names) < 2 {
				t.writeProblem(res)
			} else if res.Name == names[0] {
				t.writeVerdict(v, Count(len(names), "check"), res.Error+": "+strings.Join(names, ", "))
				t.writeDetail("do", map[string]string{notReached: "use a longer --timeout"}[res.Error])
			}
			t.writeSymptoms(r.Results, res.Name, map[string]bool{})
		}
	}
	for _, res := range r.Results {
		switch {
		case res.Fixed:
			t.writeLine(Green, "fixed", res.Name, res.Was+" -> "+res.Got)
		case verbose && res.Verdict.Fine():
			t.writeVerdict(res.Verdict, res.Name, res.Observed())
			t.writeEvidence(res)
		}
	}
	if r.Next != "" {
		fmt.Fprintf(&t, "%s    %s\n", paint(Bold, "next"), OneLine(r.Next))
	}
	t.writeTotal(r)
	_, err := t.WriteTo(w)
	return err
}

// sharedErrors returns the names of the checks that were not reached in time or not permitted, by their error.
func (r Report) sharedErrors() map[string][]string {
	names := map[string][]string{}
	for _, res := range r.Results {
		known := res.Error == notReached || strings.HasSuffix(res.Error, unix.EPERM.Error())
		if res.Verdict == verdict.Unknown && known && res.Because == "" {
			names[res.Error] = append(names[res.Error], res.Name)
		}
	}
	return names
}

// Total writes the last line of a text: the verdict, with its subject in parentheses.
func Total(w io.Writer, paint Paint, v verdict.Verdict, about string) error {
	_, err := fmt.Fprintf(w, "%s: %s  (%s)\n", paint(Bold, "nodegate"), paint.Verdict(v, v.String()), about)
	return err
}

// Total writes only the last line of the report's text.
func (r Report) Total(w io.Writer, paint Paint) error {
	t := text{paint: paint}
	t.writeTotal(r)
	_, err := t.WriteTo(w)
	return err
}

// text is a text in three columns: a word, a name, and a message.
type text struct {
	bytes.Buffer
	paint   Paint
	verbose bool
	width   int // of the name column
}

func (t *text) writeVerdict(v verdict.Verdict, name, what string) {
	t.writeRow(t.paint.Verdict(v, fmt.Sprintf("%-7s", v.String())), name, what)
}

func (t *text) writeLine(colour, word, name, what string) {
	t.writeRow(t.paint(colour, fmt.Sprintf("%-7s", word)), name, what)
}

func (t *text) writeRow(word, name, what string) {
	fmt.Fprintf(t, "%s %-*s  %s\n", word, t.width, OneLine(name), OneLine(what))
}

func (t *text) writeProblem(r Result) {
	if r.Verdict == verdict.Unknown {
		t.writeVerdict(r.Verdict, r.Name, r.Error)
	} else {
		t.writeVerdict(r.Verdict, r.Name, "want "+r.Want+", got "+r.Got)
		t.writeDetail("error", r.Error)
	}
	t.writeDetail("why", r.Reason)
	t.writeDetail("policy", r.Source)
	word := "do"
	for line := range strings.SplitSeq(r.Remedy, "\n") { // one for each file, of some checks
		t.writeDetail(word, line)
		word = ""
	}
	t.writeEvidence(r)
}

func (t *text) writeDetail(word, what string) {
	if what != "" {
		fmt.Fprintf(t, "        %s %s\n", t.paint(Dim, fmt.Sprintf("%-7s", word)), OneLine(what))
	}
}

func (t *text) writeEvidence(r Result) {
	if !t.verbose {
		return
	}
	if !r.Verdict.Fine() {
		t.writeDetail("see", r.Ref)
	}
	for _, e := range r.Evidence {
		t.writeDetail("saw", e.Source+": "+e.Text)
	}
}

// writeSymptoms lists the symptoms of a failure, and their symptoms in turn, each once: a report from another machine may be circular.
func (t *text) writeSymptoms(all []Result, cause string, listed map[string]bool) {
	listed[cause] = true
	for _, r := range all {
		if r.Because == cause && !listed[r.Name] {
			t.writeLine(Dim, "", r.Name, t.paint(Dim, "because of "+cause))
			t.writeSymptoms(all, r.Name, listed)
		}
	}
}

func (t *text) writeTotal(r Report) {
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
	if n := len(r.Results); n > 0 && !slices.ContainsFunc(r.Results, func(res Result) bool { return res.Verdict != verdict.Skipped }) {
		parts = append(parts, NoneApplies(n))
	}
	if r.Policy.Enforce != "" {
		parts = append(parts, "enforce "+r.Policy.Enforce+": nothing is held")
	}
	_ = Total(t, t.paint, r.Verdict, strings.Join(append(parts, r.duration().String()), ", "))
	if r.Left != "" {
		t.Truncate(t.Len() - 1) // the line's end
		fmt.Fprintf(t, "; %s\n", OneLine(r.Left))
	}
}
