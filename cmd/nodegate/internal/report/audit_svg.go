package report

import (
	"fmt"
	"html"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"nodegate/internal/audit"
	"nodegate/internal/verdict"
)

// The sizes of a drawing in pixels. It fits the screen of a phone (375 pixels) without being scaled; long texts are folded.
const (
	svgWidth  = 365
	svgLine   = 17 // of a text in a box
	svgGap    = 8  // between two boxes
	svgIndent = 18 // of a level
	svgChar   = 8  // the widest character
)

// svgFold is the number of endpoints with the same probability that are drawn one by one.
const svgFold = 4

// ServiceSVG draws the path of a packet to the Services of a report: from their addresses through their chains to the endpoints. Boxes
// of what a finding is about are marked. The drawing is self-contained and loads nothing.
func ServiceSVG(w io.Writer, rep *audit.Judgment) error {
	d := drawing{bottom: svgGap}
	for i := range rep.Services {
		s := service{&rep.Services[i]}
		class := "head"
		if s.Verdict != verdict.Pass {
			class = "bad"
		}
		d.drawBox(0, class, fmt.Sprintf("%s (%s, %s) %s", s.Name, s.Protocol, s.Family, s.verdict()))
		d.findings = findingsOf(rep.Findings, s)
		for _, f := range d.findings {
			d.drawBox(1, "bad", "✗ "+f.Name+": "+OneLine(f.Message))
		}
		d.drawBranches(s.branches(), 1, map[string]bool{})
		d.bottom += svgLine
	}
	for i := range rep.Findings {
		if f := &rep.Findings[i]; f.Service == "" {
			d.drawBox(0, "bad", fmt.Sprintf("%s: %s, which concerns every Service: %s", f.Verdict, f.Name, f.Describe()))
		}
	}
	return d.write(w)
}

// write writes the drawing as a document.
func (d *drawing) write(w io.Writer) error {
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" width="%[1]d" height="%[2]d"
font-family="monospace" font-size="13">
<style>
rect { fill: #f5f6f8; stroke: #8a93a2; } .head rect { fill: #dcefe1; } .bad rect { fill: #ffd9d6; stroke: #c62828; stroke-width: 2; }
path { fill: none; stroke: #8a93a2; }
text { fill: #1b1f27; white-space: pre; } .hook { font-weight: bold; } .back { fill: #fff; stroke: none; }
@media (prefers-color-scheme: dark) { rect { fill: #1d2129; } .head rect { fill: #1f3a2a; }
.bad rect { fill: #5a1f1c; } text { fill: #e6e9ee; } .back { fill: #14171c; } }
</style>
<rect class="back" width="100%%" height="100%%"/>
%[3]s</svg>
`, svgWidth, d.bottom+svgGap, d.b.String())
	return err
}

// findingsOf returns the findings about a Service.
func findingsOf(all []audit.Finding, s service) []audit.Finding {
	return slices.DeleteFunc(slices.Clone(all), func(f audit.Finding) bool {
		return f.Service != s.Name || f.Family != "" && f.Family != s.Family
	})
}

// drawing is a column of boxes and the lines between them.
type drawing struct {
	b        strings.Builder
	bottom   int             // the upper edge of the next box
	findings []audit.Finding // about the Service that is drawn
}

// drawBox draws a box and returns the height of its middle.
func (d *drawing) drawBox(level int, class, text string) int {
	x := svgGap + level*svgIndent
	width := svgWidth - svgGap - x
	lines := wrapText(printable(text), (width-svgGap)/svgChar)
	height := len(lines)*svgLine + 6
	fmt.Fprintf(&d.b, `<g class="%s"><rect x="%d" y="%d" width="%d" height="%d" rx="4"/>`, class, x, d.bottom, width, height)
	for i, line := range lines {
		fmt.Fprintf(&d.b, `<text x="%d" y="%d">%s</text>`, x+6, d.bottom+(i+1)*svgLine-2, html.EscapeString(line))
	}
	d.b.WriteString("</g>\n")
	middle := d.bottom + height/2
	d.bottom += height + svgGap
	return middle
}

// drawBranches draws a tree. A list of endpoints that was drawn already is only named.
func (d *drawing) drawBranches(list []branch, level int, drawn map[string]bool) {
	from := d.bottom - svgGap // the lower edge of the box above
	for _, n := range foldEqual(list, d.isBad) {
		class := "node"
		if d.isBad(n) {
			class = "bad"
		}
		again := len(n.sub) > 0 && n.sub[0].endpoint != nil && drawn[n.text]
		if again {
			n.text, n.sub = n.text+": the endpoints above", nil
		} else if len(n.sub) > 0 {
			drawn[n.text] = true
		}
		x := svgGap + level*svgIndent
		at := d.drawBox(level, class, n.text)
		fmt.Fprintf(&d.b, `<path d="M%d %d V%d H%d"/>`+"\n", x-svgIndent/2, from, at, x)
		d.drawBranches(n.sub, level+1, drawn)
	}
}

// isBad reports whether a finding is about the chain, the endpoint or the line of a branch.
func (d *drawing) isBad(n branch) bool {
	return slices.ContainsFunc(d.findings, func(f audit.Finding) bool {
		if n.endpoint == nil {
			return f.Chain != "" && (n.text == f.Chain || strings.HasPrefix(n.text, f.Chain+" "))
		}
		return f.Line > 1 && f.Line == n.endpoint.Line || f.Chain != "" && f.Chain == n.endpoint.Chain ||
			slices.Contains(strings.FieldsFunc(f.Message, func(r rune) bool { return strings.ContainsRune(" ,;()", r) }), n.endpoint.Address)
	})
}

// foldEqual replaces many successive endpoints with the same probability by one branch, except those that a finding is about.
func foldEqual(list []branch, bad func(branch) bool) []branch {
	var folded []branch
	for i := 0; i < len(list); {
		j := i
		for j < len(list) && list[j].endpoint != nil && !bad(list[j]) && list[j].chance() == list[i].chance() {
			j++
		}
		if n := j - i; n > svgFold {
			folded = append(folded, branch{text: fmt.Sprintf("%d endpoints, %s %% each: %s to %s", n, list[i].chance(),
				list[i].endpoint.Address, list[j-1].endpoint.Address)})
			i = j
			continue
		}
		folded = append(folded, list[i:max(j, i+1)]...)
		i = max(j, i+1)
	}
	return folded
}

// wrapText breaks a text between words, and a word that is longer than a line within it.
func wrapText(text string, columns int) []string {
	var lines []string
	line := ""
	const joined = "\x00" // in place of a space at which no line ends
	for word := range strings.FieldsSeq(strings.ReplaceAll(text, "(line ", "(line"+joined)) {
		word = strings.ReplaceAll(word, joined, " ")
		for utf8.RuneCountInString(word) > columns {
			if line != "" {
				lines, line = append(lines, line), ""
			}
			cut := []rune(word)
			lines, word = append(lines, string(cut[:columns])), string(cut[columns:])
		}
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= columns:
			line += " " + word
		default:
			lines, line = append(lines, line), word
		}
	}
	return append(lines, line)
}
