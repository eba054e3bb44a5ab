package report

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"nodegate/internal/verdict"
)

// Text writes watch's findings for people, faults first. watchUnit is the unit to
// inspect if watch is late.
func (d Watch) Text(w io.Writer, now time.Time, paint Paint, watchUnit string) error {
	since := func(t time.Time) string { return now.Sub(t).Round(time.Second).String() }
	t := text{paint: paint}
	for _, r := range d.Report.Results {
		t.width = max(t.width, len(r.Name))
	}
	for _, f := range d.Fights {
		t.width = max(t.width, len(f.Name))
	}
	for _, c := range d.Last {
		t.width = max(t.width, len(c.Subject()))
	}
	if err := d.Late(now); err != nil {
		t.writeVerdict(verdict.Unknown, "watch", err.Error()+"; run `systemctl status "+watchUnit+"`")
	}
	if d.BreakGlass != "" {
		t.writeLine(Yellow, "off", "watch", "break-glass in force ("+d.BreakGlass+"): nothing is corrected")
	}
	if d.PolicyError != "" {
		t.writeLine(Yellow, "policy", "watch", d.PolicyError+"; the last good policy is in use")
	}
	for _, f := range d.Fights {
		t.writeLine(Red, "fight", f.Name, fmt.Sprintf("for %s, next correction at %s", since(f.Since), f.Next.UTC().Format(time.TimeOnly)))
		fmt.Fprintf(&t, "        %s\n", f.Writer)
	}
	for _, v := range []verdict.Verdict{verdict.Fail, verdict.Unknown, verdict.Warn} {
		for _, r := range d.Report.Results {
			if r.Verdict == v && r.Because == "" {
				t.writeVerdict(v, r.Name, r.summary())
			}
		}
	}
	rest, shown := maps.Clone(d.Corrected), map[string]bool{}
	for _, c := range d.Last {
		if word := c.word(); !shown[word+c.Subject()] {
			shown[word+c.Subject()] = true
			total := ""
			if n := rest[c.Name]; n > 1 && !c.New {
				total = ", " + times(n) + " in all"
			}
			if !c.New {
				delete(rest, c.Name)
			}
			t.writeLine(Green, word, c.Subject(), fmt.Sprintf("%s -> %s, %s ago%s", c.Was, c.Now, since(c.Time), total))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(rest)) {
		t.writeLine(Dim, "total", name, times(rest[name])+" corrected")
	}
	_ = Total(&t, paint, d.Verdict(now), fmt.Sprintf("%s, %s, %s set, watching for %s, last round %s ago", d.Report.Node.Name,
		Count(len(d.Report.Results), "requirement"), Count(d.Links, "new link"), since(d.Since), since(d.LastRound)))
	_, err := t.WriteTo(w)
	return err
}

// word describes the correction in one word.
func (c Correction) word() string {
	if c.New {
		return "set"
	}
	return "fixed"
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// Line summarises watch's findings in one line, for `systemctl status`.
func (d Watch) Line() string {
	corrected := 0
	for _, n := range d.Corrected {
		corrected += n
	}
	line := fmt.Sprintf("%s; %s, %s corrected, %s set", d.Report.Verdict, Count(len(d.Report.Results), "requirement"),
		times(corrected), Count(d.Links, "new link"))
	if n := len(d.Fights); n > 0 {
		line += "; " + Count(n, "fight") + ": " + d.Fights[0].Name
	}
	if d.BreakGlass != "" {
		line += "; break-glass in force (" + d.BreakGlass + "): nothing is corrected"
	}
	if d.PolicyError != "" {
		line += "; the policy has an error, the last good one is in use"
	}
	return line
}
