package fleet

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"html"
	"io"
	"strings"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/verdict"
)

// How much the page shows; the text and the JSON have the rest.
const (
	pageRows   = 500  // of the heat map
	pageNames  = 8    // before a list is folded
	pageValues = 20   // of one check
	pageValue  = 2000 // characters of one value
)

//go:embed page.css
var pageStyle string

// Words are what a page calls its subject.
type Words struct {
	Wrong, Fine string                     // "3 nodes Wrong", "3 nodes, Fine"
	Verdicts    map[verdict.Verdict]string // where a verdict has another name
}

// HTML writes the table as one page, without scripts or requests. The heat map has a row for each group of nodes that are alike and a
// column for each check in which nodes differ; the checks follow, in the order
// of the columns.
func HTML(w io.Writer, f Fleet) error {
	return Page(w, f, Words{Wrong: "not as they should be", Fine: "all as they should be"})
}

// Page is HTML in other words.
func Page(w io.Writer, f Fleet, words Words) error {
	p := page{f: f, words: words}
	title := fmt.Sprintf("%d of %s %s", f.Count(verdict.Fail)+f.Count(verdict.Unknown), report.Count(len(f.Nodes), "node"), words.Wrong)
	if f.Verdict() == verdict.Pass {
		title = report.Count(len(f.Nodes), "node") + ", " + words.Fine
	}
	domain := p.text(strings.TrimPrefix(f.domain, "."), 80)
	p.put(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>nodegate fleet: `, p.text(title, 0), "</title>\n<style>\n", pageStyle,
		"</style>\n<header>\n<h1>", p.text(title, 0), "</h1>\n<p>",
		strings.Replace(p.text(f.summary(p.word), 0), domain, "<q>"+domain+"</q>", 1), "</p>\n")
	if when := f.when(); when != "" {
		p.put("<p class=quiet>", p.text(when, 0), "</p>\n")
	}
	if held := f.WouldBeHeld(); held != nil {
		fmt.Fprintf(&p, "<p>%s would be held, if enforce were not warn: ", report.Count(len(held), "node"))
		p.names(held, pageNames)
		p.put("</p>\n")
	}
	if old := f.Outdated(); old != nil {
		fmt.Fprintf(&p, "<p>%s %s: ", report.Count(len(old), "report"), outdated)
		p.names(old, pageNames)
		p.put("</p>\n")
	}
	p.put("</header>\n<main>\n")
	p.heatMap()
	p.checks()
	p.alike()
	p.put("</main>\n</html>\n")
	_, err := p.WriteTo(w)
	return err
}

type page struct {
	bytes.Buffer
	f     Fleet
	words Words
}

// word returns the verdict of a state as the page's readers know it.
func (p *page) word(s Answer) string {
	if s.NotAsked {
		return s.word()
	}
	return cmp.Or(p.words.Verdicts[s.Verdict], s.word())
}

func (p *page) put(parts ...string) {
	for _, s := range parts {
		p.WriteString(s)
	}
}

// text escapes a report's text. No other text of a report gets into the page.
func (p *page) text(s string, most int) string { return html.EscapeString(clean(s, most)) }

// class returns how a state looks: a colour and, for readers who cannot see it, a
// sign.
func (s Answer) class() (class, sign string) {
	if s.NotAsked {
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

func (p *page) heatMap() {
	columns := p.f.columns()
	if len(columns) == 0 {
		return
	}
	p.put("<section id=map>\n<h2>Nodes that differ</h2>\n<p class=quiet>A row is nodes that are alike, a column one of the checks below. ",
		"<b class=fail>", p.failed(), "</b> ", p.word(Answer{Verdict: verdict.Fail}), ", <b class=unknown>?</b> unknown, <b class=warn>!</b> ",
		p.word(Answer{Verdict: verdict.Warn}), ", ",
		"<b class=value>≠</b> pass with a value that most do not have, ",
		"<b class=skip>–</b> skipped, <b class=none>×</b> not asked.</p>\n<div class=scroll>\n<table>\n<thead><tr><th scope=col>nodes</th>")
	for i, c := range columns {
		fmt.Fprintf(p, "<th scope=col><a href=#c%d title=\"%s\">%s</a></th>", i+1, p.text(c.Name, 200), p.text(c.Name, 48))
	}
	p.put("</tr></thead>\n<tbody>\n")
	left := 0
	for row, g := range p.f.Groups {
		if row >= pageRows {
			left += len(g.Nodes)
			continue
		}
		p.put("<tr><th scope=row>")
		p.names(g.Nodes, 1)
		p.put("</th>")
		for _, c := range columns {
			p.cell(c, g.Nodes[0])
		}
		p.put("</tr>\n")
	}
	p.put("</tbody>\n</table>\n</div>\n")
	if left > 0 {
		fmt.Fprintf(p, "<p class=quiet>%s more, which differ less, are not shown.</p>\n", report.Count(left, "node"))
	}
	p.put("</section>\n")
}

func (p *page) cell(c Check, node int) {
	s, asked := c.Of(node)
	if !asked {
		p.put("<td class=none>")
		return
	}
	class, sign := s.class()
	if class == "pass" && c.IsOdd(node) {
		class, sign = "value", "≠"
	}
	switch class {
	case "pass":
		p.put("<td class=pass>")
		return
	case "fail":
		sign = p.failed()
	}
	p.put("<td class=", class, " title=\"", p.text(c.Name+": "+p.word(s)+" "+s.Got, 300), "\">", sign)
}

// names lists nodes; more than first are folded.
func (p *page) names(nodes []int, first int) {
	if len(nodes) <= first {
		p.list(nodes)
		return
	}
	p.put("<details><summary>")
	p.list(nodes[:first])
	fmt.Fprintf(p, " <b>+%d</b></summary>", len(nodes)-first)
	p.list(nodes[first:])
	p.put("</details>")
}

// list keeps each name on one line, if the line is long enough.
func (p *page) list(nodes []int) {
	for i, n := range nodes {
		if i > 0 {
			p.put(", ")
		}
		p.put("<q>", p.text(p.f.names([]int{n}, 0), 0), "</q>")
	}
}

func (p *page) checks() {
	columns := p.f.columns()
	if len(columns) == 0 {
		return
	}
	p.put("<section id=checks>\n<h2>Checks in which they differ</h2>\n")
	for i, c := range columns {
		fmt.Fprintf(p, "<article id=c%d>\n<h3><a href=#map>%d</a> %s</h3>\n<p class=quiet>%s</p>\n",
			i+1, i+1, p.text(c.Name, 200), p.text(c.says(), 0))
		p.put("<div class=bar>")
		for j, s := range c.States {
			if j < pageValues {
				fmt.Fprintf(p, "<i class=%s style=flex-grow:%d></i>", c.colour(j), len(s.Nodes))
			}
		}
		p.put("</div>\n<ul>\n")
		for j, s := range c.States {
			if j == pageValues {
				fmt.Fprintf(p, "<li>and %d other values</li>\n", len(c.States)-j)
				break
			}
			fmt.Fprintf(p, "<li><b class=%s>%s</b> <span>%s</span> <code>%s</code> ",
				c.colour(j), p.word(s), report.Count(len(s.Nodes), "node"), p.text(s.Got, pageValue))
			if j > 0 || c.Kind == Wrong && len(c.States) > 1 {
				p.names(s.Nodes, pageNames)
			}
			p.put("</li>\n")
		}
		p.put("</ul>\n")
		if c.Reason != "" {
			p.put("<p><b>Why</b> ", p.text(c.Reason, pageValue), p.link(c.Ref), "</p>\n")
		}
		if c.Remedy != "" && c.Kind != Caused {
			p.put("<p><b>Do</b> ", p.text(c.Remedy, pageValue), "</p>\n")
		}
		p.put("</article>\n")
	}
	p.put("</section>\n")
}

// failed returns the sign of what fails: the first letter of its word.
func (p *page) failed() string { return strings.ToUpper(p.word(Answer{Verdict: verdict.Fail})[:1]) }

// link returns a link to an address that a browser may open, "" for any other.
func (p *page) link(address string) string {
	if !strings.HasPrefix(address, "https://") {
		return ""
	}
	return ` <a rel=noreferrer href="` + p.text(address, 0) + `">source</a>`
}

// colour of a state in its check: a passing value that most do not have has its
// own.
func (c Check) colour(state int) string {
	class, _ := c.States[state].class()
	if class == "pass" && state > 0 && c.Kind != Varies && c.Kind != Wrong {
		return "value"
	}
	return class
}

// says describes the kind of difference.
func (c Check) says() string {
	switch c.Kind {
	case Verdicted, Valued:
		return fmt.Sprintf("%s not as most", report.Count(c.Odd(), "node"))
	case Wrong:
		if len(c.States) == 1 {
			return "the same everywhere, and not as it should be"
		}
		return "no value that most have, and some do not pass"
	case Caused:
		return "because of " + c.Because
	}
	return "a value of its own on most nodes, and all pass"
}

func (p *page) alike() {
	var names []string
	for _, c := range p.f.Checks {
		if c.Kind == Alike {
			names = append(names, "<li>"+p.text(c.Name, 200)+" <code>"+p.text(c.States[0].Got, 200)+"</code></li>")
		}
	}
	if names != nil {
		p.put("<section id=alike>\n<details><summary>The same everywhere: ", report.Count(len(names), "check"),
			"</summary>\n<ul>\n", strings.Join(names, "\n"), "\n</ul>\n</details>\n</section>\n")
	}
}
