package fleet

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"nodegate/cmd/nodegate/internal/report"
)

// The limits of the text: names of a list, and characters of a value.
const (
	textNames = 5
	textValue = 100
)

// Text writes the table for people: the checks in which nodes differ, then these
// nodes, and the totals last. With all, it names every node, and also lists the
// checks without a difference.
func Text(w io.Writer, f Fleet, all bool, paint report.Paint) error {
	t := text{f: f, paint: paint, names: textNames}
	if all {
		t.names = 0
	}
	for _, c := range f.Checks {
		switch c.Kind {
		case Verdicted, Valued, Wrong:
			t.writeCheck(c)
		}
	}
	t.writeList(Caused, "because of these")
	t.writeList(Varies, "no majority, all nodes pass")
	if all {
		t.writeList(Alike, "identical on all nodes")
	}
	t.writeGroups()
	if held := f.WouldBeHeld(); held != nil {
		fmt.Fprintf(&t, "%s would be held if enforce were not warn: %s\n\n", report.Count(len(held), "node"), f.names(held, t.names))
	}
	if old := f.Outdated(); old != nil {
		fmt.Fprintf(&t, "%s %s: %s\n\n", report.Count(len(old), "report"), outdated, f.names(old, t.names))
	}
	_ = report.Total(&t, paint, f.Verdict(), f.summary()+f.fixes)
	_, err := t.WriteTo(w)
	return err
}

type text struct {
	bytes.Buffer
	f     Fleet
	paint report.Paint
	names int
}

func (t *text) writeCheck(c Check) {
	fmt.Fprintf(t, "%s\n", clean(c.Name, textValue))
	width := 0
	for _, s := range c.States {
		width = max(width, len([]rune(clean(s.Got, textValue))))
	}
	for i, s := range c.States {
		if i == textNames && t.names > 0 {
			fmt.Fprintf(t, "        and %d other values\n", len(c.States)-i)
			break
		}
		word := s.paint(t.paint, fmt.Sprintf("%-9s", s.word()))
		line := fmt.Sprintf("%6d  %s  %-*s", len(s.Nodes), word, width, clean(s.Got, textValue))
		if i > 0 || c.Kind == Wrong && len(c.States) > 1 {
			line += "  " + t.f.names(s.Nodes, t.names)
		}
		fmt.Fprintln(t, strings.TrimRight(line, " "))
	}
	for _, detail := range [][2]string{{"want", c.Want}, {"do", c.Remedy}} {
		if detail[1] != "" && (c.Kind == Verdicted || c.Kind == Wrong) {
			fmt.Fprintf(t, "        %s %s\n", t.paint(report.Dim, fmt.Sprintf("%-9s", detail[0])), clean(detail[1], 400))
		}
	}
	fmt.Fprintln(t)
}

func (t *text) writeList(k Kind, what string) {
	var names []string
	for _, c := range t.f.Checks {
		if c.Kind != k {
			continue
		}
		name := clean(c.Name, textValue)
		if c.Because != "" {
			name += " (" + clean(c.Because, textValue) + ")"
		}
		names = append(names, name)
	}
	if names != nil {
		fmt.Fprintf(t, "%s: %s\n\n", what, strings.Join(names, ", "))
	}
}

// writeGroups lists the nodes, those with the most differences first. Identical nodes share one line.
func (t *text) writeGroups() {
	for _, g := range t.f.Groups {
		if len(g.Differs) == 0 {
			continue
		}
		var differs []string
		for _, i := range g.Differs {
			c := t.f.Checks[i]
			if c.Kind == Caused {
				continue
			}
			s, _ := c.Of(g.Nodes[0])
			result := clean(c.Name, textValue) + " " + s.paint(t.paint, s.word())
			if s.fine() && s.Got != "" {
				result += " " + clean(s.Got, 40)
			}
			differs = append(differs, result)
		}
		fmt.Fprintf(t, "%s: %s\n", t.f.names(g.Nodes, t.names), strings.Join(differs, ", "))
	}
	most := slices.DeleteFunc(slices.Clone(t.f.Groups), func(g Group) bool { return len(g.Differs) > 0 })
	for _, g := range most {
		which := strings.Replace(report.Count(len(g.Nodes), "node")+" match the majority", "node match", "node matches", 1)
		if len(most) > 1 { // in some check no state has a majority
			which = fmt.Sprintf("%d of %d nodes", len(g.Nodes), len(t.f.Nodes))
		}
		if len(t.f.Nodes) > 1 {
			fmt.Fprintf(t, "%s: %s\n", which, t.f.names(g.Nodes, t.names))
		}
	}
	fmt.Fprintln(t)
}
