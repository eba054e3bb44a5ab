package main

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"nodegate/checks"
)

func writeJSON(w io.Writer, d document) error { return encode(w, d) }

// encode writes JSON as people read it.
func encode(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// says is a result in one line, for formats that have one.
func says(r result) string {
	switch {
	case r.Error != "":
		return r.Error
	case r.Skipped != "":
		return r.Skipped
	case r.Because != "":
		return "because of " + r.Because
	}
	return "want " + r.Want + ", got " + r.Got
}

type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Errors   int         `xml:"errors,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Time     string      `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Name    string        `xml:"name,attr"`
	Class   string        `xml:"classname,attr"`
	Failure *junitMessage `xml:"failure,omitempty"`
	Error   *junitMessage `xml:"error,omitempty"`
	Skipped *junitMessage `xml:"skipped,omitempty"`
}

type junitMessage struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// writeJUnit is the XML that CI servers show. A requirement that only warns is
// a passed test.
func writeJUnit(w io.Writer, d document) error {
	s := junitSuite{Name: "nodegate " + string(d.Stage), Tests: len(d.Results), Time: fmt.Sprintf("%.3f", d.DurationMs/1000)}
	for _, r := range d.Results {
		c := junitCase{Name: r.Name, Class: "nodegate." + string(d.Stage)}
		m := &junitMessage{says(r), r.Remedy}
		switch r.Verdict {
		case checks.Fail:
			c.Failure = m
			s.Failures++
		case checks.Unknown:
			c.Error = m
			s.Errors++
		case checks.Skip:
			c.Skipped = m
			s.Skipped++
		}
		s.Cases = append(s.Cases, c)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(s); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// writeTAP is the Test Anything Protocol, version 13.
func writeTAP(w io.Writer, d document) error {
	var b strings.Builder
	fmt.Fprintf(&b, "TAP version 13\n1..%d\n", len(d.Results))
	for i, r := range d.Results {
		ok := "ok"
		if r.Verdict == checks.Fail || r.Verdict == checks.Unknown {
			ok = "not ok"
		}
		fmt.Fprintf(&b, "%s %d - %s", ok, i+1, r.Name)
		switch {
		case r.Verdict == checks.Skip:
			fmt.Fprintf(&b, " # SKIP %s", r.Skipped)
		case r.Verdict != checks.Pass:
			fmt.Fprintf(&b, "\n# %s: %s", r.Verdict, says(r))
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writePrometheus is the text format, for node_exporter's textfile collector.
func writePrometheus(w io.Writer, d document) error {
	var b strings.Builder
	b.WriteString("# HELP nodegate_requirement Whether the requirement has this verdict, 1 or 0.\n# TYPE nodegate_requirement gauge\n")
	for _, r := range d.Results {
		for _, v := range []checks.Verdict{checks.Pass, checks.Warn, checks.Fail, checks.Unknown, checks.Skip} {
			n := 0
			if r.Verdict == v {
				n = 1
			}
			fmt.Fprintf(&b, "nodegate_requirement{name=%s,severity=\"%s\",verdict=\"%s\"} %d\n", label(r.Name), r.Severity, v, n)
		}
	}
	holds := 0
	if d.Verdict == checks.Pass {
		holds = 1
	}
	fmt.Fprintf(&b, "# HELP nodegate_holds Whether every blocking requirement holds, 1 or 0.\n# TYPE nodegate_holds gauge\nnodegate_holds{stage=\"%s\"} %d\n", d.Stage, holds)
	fmt.Fprintf(&b, "# HELP nodegate_check_duration_seconds How long the check took.\n# TYPE nodegate_check_duration_seconds gauge\nnodegate_check_duration_seconds %g\n", d.DurationMs/1000)
	fmt.Fprintf(&b, "# HELP nodegate_last_check_timestamp_seconds When the check began.\n# TYPE nodegate_last_check_timestamp_seconds gauge\nnodegate_last_check_timestamp_seconds %d\n", d.report.Started.Unix())
	_, err := io.WriteString(w, b.String())
	return err
}

// label quotes a label value as the exposition format asks.
func label(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}

// writeNPD is one line of at most 80 bytes, node-problem-detector's default for
// a custom plugin's message. Its exit status 1 is a problem, 3 unknown: ours.
func writeNPD(w io.Writer, d document) error {
	line := "node policy holds"
	for _, v := range []checks.Verdict{checks.Unknown, checks.Fail} {
		for _, r := range d.Results {
			if r.Verdict == v && r.Because == "" && d.Verdict == v {
				line = r.Name + ": " + says(r)
				break
			}
		}
	}
	if len(line) > 80 {
		line = strings.ToValidUTF8(line[:77], "") + "..."
	}
	_, err := fmt.Fprintln(w, line)
	return err
}
