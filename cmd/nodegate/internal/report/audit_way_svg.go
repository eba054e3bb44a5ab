package report

import (
	"fmt"
	"html"
	"io"

	"nodegate/internal/audit"
	"nodegate/internal/verdict"
)

// drawWays draws the ways of packets from the top to the bottom: the hooks in their order with the rules that decide, the share of each
// way on its arrow, and its end. A rule that loses packets is marked.
func drawWays(w io.Writer, list []audit.Trace) error {
	d := drawing{bottom: svgGap}
	for _, t := range list {
		class := "head"
		if t.Verdict != verdict.Pass {
			class = "bad"
		}
		d.drawBox(0, class, trace(t).title())
		hook := d.drawSteps(0, "", t.Steps, len(t.Steps) > 0 && len(t.Ways) == 1 && len(t.Ways[0].Steps) == 0 && isLost(t.Ways[0]))
		fork := d.bottom - svgGap
		for _, one := range t.Ways {
			d.drawWay(one, hook, fork)
		}
		for _, text := range t.NotFollowed {
			d.drawBox(0, "node", "not followed: "+text)
		}
		d.bottom += svgLine
	}
	return d.write(w)
}

// drawWay draws what only this way passes, to its end. The arrow begins at the fork, at the left of the ways before it.
func (d *drawing) drawWay(w audit.TraceWay, hook string, fork int) {
	const rail = svgGap + svgIndent/2
	d.bottom += svgLine
	fmt.Fprintf(&d.b, `<path d="M%d %d V%d h%d"/><text x="%d" y="%d">%s</text>`+"\n", rail, fork, d.bottom+svgGap/2, svgIndent,
		rail+svgIndent/2, d.bottom, html.EscapeString(share(w)))
	d.bottom += svgLine/2 + svgGap/2
	d.drawSteps(1, hook, w.Steps, isLost(w))
	class := "head"
	if isLost(w) || w.ReplyLost {
		class = "bad"
	} else if !w.Sure || w.End == "unknown" {
		class = "node"
	}
	if len(w.Steps) > 0 {
		d.step(1)
	}
	d.drawBox(1, class, endOf(w))
	if w.Reply != "" {
		d.drawBox(1, "node", "the reply "+w.Reply)
	}
}

// drawSteps draws rules below their hooks, and returns the last hook. The last rule is marked if it loses the packets.
func (d *drawing) drawSteps(level int, hook string, steps []audit.TraceStep, lost bool) string {
	for i, s := range steps {
		if s.Hook != hook {
			hook = s.Hook
			d.bottom += svgLine
			fmt.Fprintf(&d.b, `<text class="hook" x="%d" y="%d">%s</text>`+"\n", svgGap+level*svgIndent+svgIndent, d.bottom, html.EscapeString(hook))
			d.arrow(svgGap+level*svgIndent+svgIndent/2, d.bottom-svgLine-svgGap, d.bottom+svgGap)
			d.bottom += svgGap
		} else {
			d.step(level)
		}
		class := "node"
		if lost && i == len(steps)-1 {
			class = "bad"
		}
		d.drawBox(level, class, stepText(s))
	}
	return hook
}

// step draws the arrow from a box to the next one.
func (d *drawing) step(level int) {
	d.bottom += svgGap
	d.arrow(svgGap+level*svgIndent+svgIndent/2, d.bottom-2*svgGap, d.bottom)
}

func (d *drawing) arrow(x, from, to int) {
	fmt.Fprintf(&d.b, `<path d="M%d %d V%d m-3 -5 l3 5 l3 -5"/>`+"\n", x, from, to)
}
