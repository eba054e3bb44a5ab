package fleet

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"html"
	"io"
	"regexp"
	"strings"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/verdict"
)

// The limits of the page. The text and JSON formats show everything.
const (
	pageRows   = 500  // rows of the heat map
	pageNames  = 8    // names before a list is folded
	pageValues = 20   // values of one check
	pageValue  = 2000 // characters of one value
)

//go:embed page.css
var pageStyle string

// Words holds the words of a page for its subject.
type Words struct {
	Page        string                     // the title begins with "nodegate Page"
	Of          string                     // what the page is about, before the counts; "" for the fleet itself
	Wrong, Fine string                     // "3 nodes Wrong", "3 nodes, Fine"
	Verdicts    map[verdict.Verdict]string // the page's own names of verdicts
}

// HTML writes the table as one page, without scripts or requests. The heat map has a row for each group of identical nodes and a
// column for each check in which nodes differ. The checks follow in the order of the columns.
func HTML(w io.Writer, f Fleet) error {
	words := Words{Page: "fleet", Wrong: "not passing", Fine: "all pass"}
	if f.single() {
		words.Page = "report"
	}
	return Page(w, f, words)
}

// Page writes the page of HTML with other words.
func Page(w io.Writer, f Fleet, words Words) error {
	p := page{f: f, words: words}
	title := fmt.Sprintf("%d of %s %s", f.Count(verdict.Fail)+f.Count(verdict.Unknown), report.Count(len(f.Nodes), "node"), words.Wrong)
	if f.Verdict() == verdict.Pass {
		title = report.Count(len(f.Nodes), "node") + ", " + words.Fine
	}
	if f.single() && words.Of == "" {
		title = clean(f.Nodes[0].Name, hostName) + ": " + f.Nodes[0].Verdict.String()
	}
	headline := title
	if words.Of != "" {
		headline, p.f.fixes = words.Of+": "+title, ""
	}
	summary := p.escape(f.summary(p.word), 0)
	if f.domain != "" { // it stays on one line
		domain := p.escape(strings.TrimPrefix(f.domain, "."), hostName) + ","
		summary = strings.Replace(summary, domain, "<q>"+domain+"</q>", 1)
	}
	p.writeParts(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>nodegate `, words.Page, ": ", p.escape(headline, 300), "</title>\n<style>\n", pageStyle,
		"</style>\n<header>\n<h1>", p.escape(headline, 300), p.marked(p.f.fixes), "</h1>\n<p>",
		summary, "</p>\n")
	if when := f.checkedPeriod(); when != "" {
		p.writeParts("<p class=quiet>", p.escape(when, 0), "</p>\n")
	}
	if held := f.WouldBeHeld(); held != nil {
		fmt.Fprintf(&p, "<p>%s would be held if enforce were not warn: ", report.Count(len(held), "node"))
		p.writeNames(held, pageNames)
		p.writeParts("</p>\n")
	}
	if old := f.Outdated(); old != nil {
		fmt.Fprintf(&p, "<p>%s %s: ", report.Count(len(old), "report"), outdated)
		p.writeNames(old, pageNames)
		p.writeParts("</p>\n")
	}
	p.writeParts("</header>\n<main>\n")
	p.writeHeatMap()
	p.writeChecks()
	p.writeAlike()
	p.writeParts("</main>\n</html>\n")
	_, err := p.WriteTo(w)
	return err
}

type page struct {
	bytes.Buffer
	f     Fleet
	words Words
}

// word returns the page's word for the verdict of a state.
func (p *page) word(s Answer) string {
	if s.NotChecked {
		return s.word()
	}
	return cmp.Or(p.words.Verdicts[s.Verdict], s.word())
}

func (p *page) writeParts(parts ...string) {
	for _, s := range parts {
		p.WriteString(s)
	}
}

// escape escapes a report's text for HTML. All text from a report must pass through it.
func (p *page) escape(s string, most int) string { return html.EscapeString(clean(s, most)) }

// marked returns a report's sentence, whose commands in backquotes become code.
func (p *page) marked(s string) string {
	return regexp.MustCompile("`([^`]+)`").ReplaceAllString(p.escape(s, pageValue), "<code>$1</code>")
}

// class returns the CSS class of a state, which sets its colour, and a sign for readers who cannot
// distinguish the colours.
func (s Answer) class() (class, sign string) {
	if s.NotChecked {
		return "none", "×"
	}
	switch s.Verdict {
	case verdict.Fail:
		return "fail", ""
	case verdict.Unknown:
		return "unknown", "?"
	case verdict.Warn:
		return "warn", "!"
	case verdict.Pass:
		return "pass", ""
	}
	return "skip", "–"
}

// columns returns the checks of the heat map.
func (f Fleet) columns() []Check { return f.Checks[:len(f.Checks)-f.OfKind(Alike)] }

func (p *page) writeHeatMap() {
	columns := p.f.columns()
	columns = columns[:len(columns)-p.f.OfKind(Varies)] // all their cells pass
	if len(columns) == 0 || p.f.single() {
		return
	}
	heading := "Nodes that differ"
	if len(p.f.Groups) == 1 {
		heading = "All nodes are alike"
	}
	p.writeParts("<section id=map>\n<h2>", heading, "</h2>\n<p class=quiet>Each row is a group of identical nodes, each column "+
		"one of the checks below. ",
		"<b class=fail>", p.failSign(), "</b> ", p.word(Answer{Verdict: verdict.Fail}), ", <b class=unknown>?</b> unknown, <b class=warn>!</b> ",
		p.word(Answer{Verdict: verdict.Warn}), ", ",
		"<b class=value>≠</b> pass with a value that differs from the majority, ",
		"<b class=skip>–</b> skipped, <b class=none>×</b> not checked.</p>\n")
	// A narrower window than the first column (8.5) and the others (1.75 each) cuts the table off.
	fmt.Fprintf(p, "<style>@media (max-width: %drem) { #map .more { display: block } }</style>\n", 11+2*len(columns))
	p.writeParts("<p class=\"more quiet\">More columns: scroll the table sideways →</p>\n<div class=scroll>\n<table>\n",
		"<thead><tr><th scope=col>nodes</th>")
	for i, c := range columns {
		fmt.Fprintf(p, "<th scope=col><a href=#c%d title=\"%s\">%s</a></th>", i+1, p.escape(c.Name, 200), p.escape(c.Name, 48))
	}
	p.writeParts("</tr></thead>\n<tbody>\n")
	left := 0
	for row, g := range p.f.Groups {
		if row >= pageRows {
			left += len(g.Nodes)
			continue
		}
		p.writeParts("<tr><th scope=row>")
		p.writeNames(g.Nodes, 1)
		p.writeParts("</th>")
		for _, c := range columns {
			p.writeCell(c, g.Nodes[0])
		}
		p.writeParts("</tr>\n")
	}
	p.writeParts("</tbody>\n</table>\n</div>\n")
	if left > 0 {
		fmt.Fprintf(p, "<p class=quiet>%s with fewer differences not shown.</p>\n", report.Count(left, "node"))
	}
	p.writeParts("</section>\n")
}

func (p *page) writeCell(c Check, node int) {
	s, asked := c.Of(node)
	if !asked {
		p.writeParts("<td class=none>")
		return
	}
	class, sign := s.class()
	if class == "pass" && c.IsOdd(node) {
		class, sign = "value", "≠"
	}
	switch class {
	case "pass":
		p.writeParts("<td class=pass>")
		return
	case "fail":
		sign = p.failSign()
	}
	p.writeParts("<td class=", class, " title=\"", p.escape(c.Name+": "+p.word(s)+" "+s.Got, 300), "\">", sign)
}

// writeNames lists nodes, and folds the list after the first few.
func (p *page) writeNames(nodes []int, first int) {
	if len(nodes) <= first {
		p.writeList(nodes)
		return
	}
	p.writeParts("<details><summary>")
	p.writeList(nodes[:first])
	fmt.Fprintf(p, " <b>+%d</b></summary>", len(nodes)-first)
	p.writeList(nodes[first:])
	p.writeParts("</details>")
}

// writeList lists nodes. Each name stays on one line if the line is long enough.
func (p *page) writeList(nodes []int) {
	for i, n := range nodes {
		p.writeParts("<q>", p.escape(p.f.names([]int{n}, 0), 0), map[bool]string{true: ",</q> ", false: "</q>"}[i < len(nodes)-1])
	}
}

func (p *page) writeChecks() {
	columns := p.f.columns()
	if len(columns) == 0 {
		return
	}
	heading := "Checks with differences"
	if len(p.f.Groups) == 1 {
		heading = "Checks that do not pass"
	}
	p.writeParts("<section id=checks>\n<h2>", heading, "</h2>\n")
	for i, c := range columns {
		if p.f.single() {
			fmt.Fprintf(p, "<article id=c%d>\n<h3>%s</h3>\n", i+1, p.escape(c.Name, 200))
		} else {
			fmt.Fprintf(p, "<article id=c%d>\n<h3><a href=#map>%d</a> %s</h3>\n<p class=quiet>%s</p>\n",
				i+1, i+1, p.escape(c.Name, 200), p.escape(c.describe(), 0))
		}
		p.writeParts("<div class=bar>")
		for j, s := range c.States {
			if j < pageValues && len(c.States) > 1 {
				fmt.Fprintf(p, "<i class=%s style=flex-grow:%d></i>", c.colour(j), len(s.Nodes))
			}
		}
		p.writeParts("</div>\n<ul>\n")
		for j, s := range c.States {
			if j == pageValues {
				fmt.Fprintf(p, "<li>and %d other values</li>\n", len(c.States)-j)
				break
			}
			count := report.Count(len(s.Nodes), "node")
			if p.f.single() {
				count = "found"
			}
			fmt.Fprintf(p, "<li><b class=%s>%s</b> <span>%s</span> <code>%s</code> ", c.colour(j), p.word(s), count, p.escape(s.Got, pageValue))
			if j > 0 || c.Kind == Wrong && len(c.States) > 1 {
				p.writeNames(s.Nodes, pageNames)
			}
			p.writeParts("</li>\n")
		}
		p.writeParts("</ul>\n")
		if c.Want != "" && c.Kind != Caused {
			p.writeParts("<p><b>Want</b> <code>", p.escape(c.Want, pageValue), "</code></p>\n")
		}
		if c.Source != "" {
			p.writeParts("<p><b>Policy</b> <code>", p.escape(c.Source, pageValue), "</code></p>\n")
		}
		if c.Reason != "" {
			p.writeParts("<p><b>Why</b> ", p.marked(c.Reason), p.link(c.Ref), "</p>\n")
		}
		if c.Remedy != "" && c.Kind != Caused {
			p.writeParts("<p><b>Do</b> ", p.marked(c.Remedy), "</p>\n")
		}
		p.writeParts("</article>\n")
	}
	p.writeParts("</section>\n")
}

// single reports whether the page is about one node, which has no other to differ from.
func (f Fleet) single() bool { return len(f.Nodes) == 1 }

// failSign returns the sign of a failure: the first letter of the page's word for it.
func (p *page) failSign() string { return strings.ToUpper(p.word(Answer{Verdict: verdict.Fail})[:1]) }

// link returns a link to an https address, or "" for any other address.
func (p *page) link(address string) string {
	if !strings.HasPrefix(address, "https://") {
		return ""
	}
	return ` <a rel=noreferrer href="` + p.escape(address, 0) + `">source</a>`
}

// colour returns the CSS class of a state in its check. A passing value that differs from the
// majority has its own class.
func (c Check) colour(state int) string {
	class, _ := c.States[state].class()
	if class == "pass" && state > 0 && c.Kind != Varies && c.Kind != Wrong {
		return "value"
	}
	return class
}

// describe describes the kind of difference.
func (c Check) describe() string {
	switch c.Kind {
	case Verdicted, Valued:
		odd := c.Odd()
		verb := "differ"
		if odd == 1 {
			verb = "differs"
		}
		return fmt.Sprintf("%s %s from the majority", report.Count(odd, "node"), verb)
	case Wrong:
		if len(c.States) == 1 {
			return "all nodes have the same result, and none passes"
		}
		return "no majority, and some nodes do not pass"
	case Caused:
		return "because of " + c.Because
	}
	return "no majority, and all nodes pass"
}

func (p *page) writeAlike() {
	var names []string
	counted := report.Count(p.f.OfKind(Alike)-p.f.countFacts(Alike), "check")
	if facts := p.f.countFacts(Alike); facts > 0 {
		counted += fmt.Sprintf(", %d facts of the node", facts)
	}
	for _, c := range p.f.Checks {
		if c.Kind == Alike {
			names = append(names, "<li>"+p.escape(c.Name, 200)+" <code>"+p.escape(c.States[0].Got, 200)+"</code></li>")
		}
	}
	if names != nil {
		all := "Identical on all nodes: "
		if p.f.single() {
			all = "Passed or skipped: "
		}
		p.writeParts("<section id=alike>\n<details><summary>", all, counted,
			"</summary>\n<ul>\n", strings.Join(names, "\n"), "\n</ul>\n</details>\n</section>\n")
	}
}
