package fleet

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/verdict"
)

// word returns the word for the verdict.
func (s Answer) word() string {
	if s.NotChecked {
		return "not checked"
	}
	return s.Verdict.String()
}

// rank returns the index of the verdict in verdict.All, the worst first, or -1 if the nodes were not checked.
func (s Answer) rank() int {
	if s.NotChecked {
		return -1
	}
	return slices.Index(verdict.All(), s.Verdict)
}

// paint colours a word in the colour of the verdict. It does not colour nodes that were not checked.
func (s Answer) paint(paint report.Paint, word string) string {
	if s.NotChecked {
		return word
	}
	return paint.Verdict(s.Verdict, word)
}

// fine reports whether the answer needs no attention.
func (s Answer) fine() bool { return s.NotChecked || s.Verdict.Fine() }

// clean returns a text of a report as one line that is safe to print. It replaces
// control characters, which could rewrite a terminal, and characters that change
// the direction of writing. It cuts the text after most runes if most is not 0.
func clean(text string, most int) string {
	var b strings.Builder
	n := 0
	for _, r := range strings.Join(strings.Fields(text), " ") {
		if n++; most > 0 && n > most {
			b.WriteString("...")
			break
		}
		if !unicode.IsPrint(r) {
			r = unicode.ReplacementChar
		}
		b.WriteRune(r)
	}
	return b.String()
}

const hostName = 253 // characters of the longest name in DNS

// names lists nodes, at most the first most ones if most is not 0.
func (f Fleet) names(nodes []int, most int) string {
	var b strings.Builder
	for i, n := range nodes {
		if most > 0 && i == most {
			fmt.Fprintf(&b, " and %d more", len(nodes)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(clean(strings.TrimSuffix(f.Nodes[n].Name, f.domain), hostName))
	}
	return b.String()
}

// domain returns the common suffix of all names, from a dot on, which the table does
// not repeat. It returns "" if a name would be empty without it.
func domain(nodes []Member) string {
	if len(nodes) < 2 {
		return ""
	}
	_, end, _ := strings.Cut(nodes[0].Name, ".")
	for _, n := range nodes {
		for end != "" && (!strings.HasSuffix(n.Name, "."+end) || len(n.Name) == len(end)+1) {
			_, end, _ = strings.Cut(end, ".")
		}
	}
	if end == "" {
		return ""
	}
	return "." + end
}

// summary returns the fleet in one line: "1000 nodes, 98 checks, stage boot: 3 fail, 997 pass". Of one node it counts the checks.
func (f Fleet) summary() string {
	var parts []string
	for _, v := range []verdict.Verdict{verdict.Fail, verdict.Unknown, verdict.Warn, verdict.Pass} {
		n := f.Count(v)
		if len(f.Nodes) == 1 {
			n = count(f.Checks, func(c Check) bool {
				return c.Kind != Caused && !strings.HasPrefix(c.Name, factPrefix) && c.States[0].Verdict == v
			})
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, v))
		}
	}
	stages := f.Stages()
	for i := range stages {
		stages[i] = clean(stages[i], 40)
	}
	nodes := report.Count(len(f.Nodes), "node") + ", "
	if len(f.Nodes) == 1 {
		nodes = ""
	} else if f.domain != "" {
		nodes = report.Count(len(f.Nodes), "node") + " of " + clean(strings.TrimPrefix(f.domain, "."), hostName) + ", "
	}
	checks := count(f.Checks, func(c Check) bool { return !strings.HasPrefix(c.Name, factPrefix) })
	return fmt.Sprintf("%s%s, stage %s: %s", nodes, report.Count(checks, "check"), strings.Join(stages, " and "), strings.Join(parts, ", "))
}

// outdated describes the reports of Outdated.
const outdated = "more than a day older than the newest (is nodegate watch running there?)"
