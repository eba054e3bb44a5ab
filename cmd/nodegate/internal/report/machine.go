package report

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"nodegate/internal/verdict"
)

// Renderer returns the writer of a format: text, json, junit, tap, prometheus or npd.
func Renderer(format string, paint Paint, verbose bool) (func(io.Writer, Report) error, error) {
	switch format {
	case "text":
		return func(w io.Writer, r Report) error { return r.Text(w, paint, verbose) }, nil
	case "json":
		return func(w io.Writer, r Report) error { return JSON(w, r) }, nil
	case "junit":
		return writeJUnit, nil
	case "tap":
		return writeTAP, nil
	case "prometheus":
		return writePrometheus, nil
	case "npd":
		return writeNPD, nil
	}
	return nil, fmt.Errorf("unknown format %q; known formats: text, json, junit, tap, prometheus, npd", format)
}

// JSON writes a document as indented JSON.
func JSON(w io.Writer, document any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(document)
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

// writeJUnit writes the XML that CI servers show. A requirement that only warns is a
// passed test.
func writeJUnit(w io.Writer, r Report) error {
	s := junitSuite{Name: "nodegate " + r.Stage, Tests: len(r.Results), Time: fmt.Sprintf("%.3f", r.DurationMs/1000)}
	for _, res := range r.Results {
		c := junitCase{Name: res.Name, Class: "nodegate." + r.Stage}
		m := &junitMessage{res.summary(), res.Remedy}
		switch res.Verdict {
		case verdict.Fail:
			c.Failure = m
			s.Failures++
		case verdict.Unknown:
			c.Error = m
			s.Errors++
		case verdict.Skipped:
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

// writeTAP writes the Test Anything Protocol, version 13.
func writeTAP(w io.Writer, r Report) error {
	var b strings.Builder
	fmt.Fprintf(&b, "TAP version 13\n1..%d\n", len(r.Results))
	for i, res := range r.Results {
		ok := "ok"
		if res.Verdict == verdict.Fail || res.Verdict == verdict.Unknown {
			ok = "not ok"
		}
		fmt.Fprintf(&b, "%s %d - %s", ok, i+1, OneLine(res.Name))
		switch res.Verdict {
		case verdict.Pass:
		case verdict.Skipped:
			fmt.Fprintf(&b, " # SKIP %s", OneLine(res.Skipped))
		default:
			fmt.Fprintf(&b, "\n# %s: %s", res.Verdict, OneLine(res.summary()))
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeNPD writes one line of at most 80 bytes, node-problem-detector's default for a
// custom plugin's message.
func writeNPD(w io.Writer, r Report) error {
	if len(r.Results) == 0 && r.Verdict == verdict.Unknown {
		return NotChecked(w, "the policy has no requirement at stage "+r.Stage)
	}
	if r.Verdict == verdict.Pass {
		return writeNPDLine(w, "node policy passes")
	}
	line := "the node's verdict is " + r.Verdict.String()
	if behind := ResultsBehind(r.Verdict, r.Results); len(behind) > 0 {
		line = behind[0].Name + ": " + behind[0].summary()
	}
	return writeNPDLine(w, line)
}

// NotChecked writes the line of the npd format for a run without a report.
func NotChecked(w io.Writer, why string) error {
	why, _, _ = strings.Cut(why, "\n")
	return writeNPDLine(w, "nothing was checked: "+why)
}

func writeNPDLine(w io.Writer, line string) error {
	line = OneLine(line)
	if len(line) > 80 {
		line = strings.ToValidUTF8(line[:77], "") + "..."
	}
	_, err := fmt.Fprintln(w, line)
	return err
}
