package preview

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/plain"
)

// Summary is the JSON of a preview, for other tools.
type Summary struct {
	APIVersion string          `json:"apiVersion"` // nodegate/v1
	Kind       string          `json:"kind"`       // Preview
	Count      map[Outcome]int `json:"count"`      // nodes by outcome
	Nodes      []Forecast      `json:"nodes"`      // in the order of the recordings
}

// NewSummary returns the document of the nodes.
func NewSummary(nodes []Forecast) Summary {
	return Summary{report.APIVersion, "Preview", countOutcomes(nodes), nodes}
}

func countOutcomes(nodes []Forecast) map[Outcome]int {
	n := map[Outcome]int{}
	for _, o := range Outcomes() {
		n[o] = 0
	}
	for _, node := range nodes {
		n[node.Outcome]++
	}
	return n
}

// Worst returns the worst outcome of all nodes.
func Worst(nodes []Forecast) Outcome {
	n := countOutcomes(nodes)
	for _, o := range Outcomes() {
		if n[o] > 0 {
			return o
		}
	}
	return Pass
}

// fewNames limits how many nodes are listed under each reason, unless all are requested.
const fewNames = 4

// line is a reason, with the requirements that have it on the same nodes.
type line struct {
	Reason
	checks, nodes []string
}

// linesOf returns one line for each reason and set of nodes, worst first. Requirements that are unknown for one reason share a line.
func linesOf(nodes []Forecast) []*line {
	var lines, merged []*line
	by := map[Reason]*line{}
	for _, n := range nodes {
		for _, r := range n.Reasons {
			if by[r] == nil {
				by[r] = &line{Reason: r, checks: []string{r.Name}}
				lines = append(lines, by[r])
			}
			by[r].nodes = append(by[r].nodes, n.Name)
		}
	}
	for _, l := range lines {
		same := func(m *line) bool { return l.Outcome == Unknown && m.Text == l.Text && slices.Equal(m.nodes, l.nodes) }
		if i := slices.IndexFunc(merged, same); i >= 0 {
			merged[i].checks = append(merged[i].checks, l.Name)
		} else {
			merged = append(merged, l)
		}
	}
	slices.SortStableFunc(merged, func(a, b *line) int {
		return cmp.Or(slices.Index(Outcomes(), a.Outcome)-slices.Index(Outcomes(), b.Outcome), len(b.nodes)-len(a.nodes))
	})
	return merged
}

// Text writes one line for each reason, worst first, and the nodes that have this reason.
func Text(w io.Writer, nodes []Forecast, all bool, paint report.Paint) error {
	lines := linesOf(nodes)
	colours := map[Outcome]string{Held: report.Red, Unknown: report.Yellow, Changed: report.Green}
	var out bytes.Buffer
	for _, l := range lines {
		few := func(names []string, separator string) string {
			more := ""
			if len(names) > fewNames && !all {
				names, more = names[:fewNames], fmt.Sprintf(" and %d more", len(names)-fewNames)
			}
			return escapeLine(strings.Join(names, separator)) + more
		}
		fmt.Fprintf(&out, "%s %6d  %s: %s\n%17s%s\n", paint(colours[l.Outcome], fmt.Sprintf("%-8s", l.Outcome)), len(l.nodes),
			few(l.checks, ", "), escapeLine(l.Text), "", few(l.nodes, " "))
	}
	n := countOutcomes(nodes)
	var parts []string
	for _, o := range slices.Backward(Outcomes()) {
		parts = append(parts, fmt.Sprintf("%d %s", n[o], o))
	}
	fmt.Fprintf(&out, "nodegate: %s: %s\n", report.Count(len(nodes), "node"), strings.Join(parts, ", "))
	_, err := out.WriteTo(w)
	return err
}

// escapeLine returns text from another machine as one line without control characters.
func escapeLine(text string) string { return plain.Escape(report.OneLine(text)) }
