package report

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"nodegate/internal/verdict"
)

// Renderer returns the writer of a format: json, junit, prometheus, or else text.
func Renderer(format string, paint Paint, verbose bool) func(io.Writer, Report) error {
	switch format {
	case "json":
		return func(w io.Writer, r Report) error { return JSON(w, r) }
	case "junit":
		return writeJUnit
	case "prometheus":
		return writePrometheus
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
