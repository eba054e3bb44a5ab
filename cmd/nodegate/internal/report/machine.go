package report

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"nodegate/internal/verdict"
)

// Renderer returns the writer of a format: json, junit, prometheus, npd, or else text.
func Renderer(format string, paint Paint, verbose bool) func(io.Writer, Report) error {
	switch format {
	case "json":
		return func(w io.Writer, r Report) error { return JSON(w, r) }
	case "junit":
		return writeJUnit
	case "prometheus":
		return writePrometheus
	case "npd":
		return writeNPD
	}
	return func(w io.Writer, r Report) error { return r.Text(w, paint, verbose) }
}

// JSON writes a document as indented JSON.
func JSON(w io.Writer, document any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(document)
}

// writeJUnit writes the XML that CI servers show. A requirement that only warns is a
// passed test.
func writeJUnit(w io.Writer, r Report) error {
	attribute := func(s string) string {
		var b strings.Builder
		_ = xml.EscapeText(&b, []byte(s)) // a strings.Builder takes everything
		return b.String()
	}
	class := attribute("nodegate " + r.Stage)
	elements := map[verdict.Verdict]string{verdict.Fail: "failure", verdict.Unknown: "error", verdict.Skipped: "skipped"}
	count := map[string]int{}
	var cases strings.Builder
	for _, res := range r.Results {
		fmt.Fprintf(&cases, "  <testcase name=\"%s\" classname=\"%s\">", attribute(res.Name), strings.Replace(class, " ", ".", 1))
		if e := elements[res.Verdict]; e != "" {
			count[e]++
			fmt.Fprintf(&cases, "\n    <%s message=\"%s\">%s</%[1]s>\n  ", e, attribute(res.summary()), attribute(res.Remedy))
		}
		cases.WriteString("</testcase>\n")
	}
	const suite = `<testsuite name="%s" tests="%d" failures="%d" errors="%d" skipped="%d" time="%.3f">`
	_, err := fmt.Fprintf(w, xml.Header+suite+"\n%s</testsuite>\n", class, len(r.Results), count["failure"], count["error"],
		count["skipped"], r.DurationMs/1000, &cases)
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
