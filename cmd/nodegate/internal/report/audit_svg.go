package report

import (
	"fmt"
	"html"
	"io"
	"strings"
	"unicode/utf8"

	"nodegate/internal/proxyrules"
	"nodegate/internal/verdict"
)

// The sizes of a drawing in pixels: the height of a row, the indent of a level, and the width of a character.
const (
	svgRow    = 30
	svgIndent = 28
	svgChar   = 8
)

// ServiceSVG draws the path of a packet to the Services of a report: from their addresses through their chains to the endpoints. The
// drawing is self-contained and loads nothing.
func ServiceSVG(w io.Writer, rep *proxyrules.Judgment) error {
	var d drawing
	for i := range rep.Services {
		s := service{&rep.Services[i]}
		class := "head"
		if s.Verdict != verdict.Pass {
			class = "bad"
		}
		text := fmt.Sprintf("%s (%s, %s) %s", s.Name, s.Protocol, s.Family, s.verdict())
		if len(s.Findings) > 0 {
			text += ": " + strings.Join(s.Findings, ", ")
		}
		d.drawBox(0, class, text)
		d.drawBranches(s.branches(), 1)
		d.rows++
	}
	return d.write(w)
}

// write writes the drawing as a document.
func (d *drawing) write(w io.Writer) error {
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="monospace" font-size="13">
<style>
rect { fill: #f5f6f8; stroke: #8a93a2; } .head rect { fill: #dcefe1; } .bad rect { fill: #ffd9d6; stroke: #c62828; }
path { fill: none; stroke: #8a93a2; }
text { fill: #1b1f27; white-space: pre; } .back { fill: #fff; stroke: none; }
@media (prefers-color-scheme: dark) { rect { fill: #1d2129; } .head rect { fill: #1f3a2a; }
.bad rect { fill: #5a1f1c; } text { fill: #e6e9ee; } .back { fill: #14171c; } }
</style>
<rect class="back" width="100%%" height="100%%"/>
%s</svg>
`, d.width+20, d.rows*svgRow+10, d.b.String())
	return err
}

// drawing is a column of boxes and the lines between them.
type drawing struct {
	b           strings.Builder
	rows, width int
}

func (d *drawing) drawBox(level int, class, text string) {
	text = printable(text)
	x, y, width := 10+level*svgIndent, 10+d.rows*svgRow, utf8.RuneCountInString(text)*svgChar+16
	fmt.Fprintf(&d.b, `<g class="%s"><rect x="%d" y="%d" width="%d" height="%d" rx="4"/><text x="%d" y="%d">%s</text></g>`+"\n",
		class, x, y, width, svgRow-6, x+8, y+svgRow/2+1, html.EscapeString(text))
	d.width = max(d.width, x+width)
	d.rows++
}

func (d *drawing) drawBranches(list []branch, level int) {
	from := d.rows*svgRow + 4 // the lower edge of the box above
	for _, n := range list {
		x := 10 + level*svgIndent
		fmt.Fprintf(&d.b, `<path d="M%d %d V%d H%d"/>`+"\n", x-svgIndent/2, from, 10+d.rows*svgRow+(svgRow-6)/2, x)
		d.drawBox(level, "node", n.text)
		d.drawBranches(n.sub, level+1)
	}
}
