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

// document is the document that JSON writes.
type document struct {
	APIVersion string          `json:"apiVersion"` // nodegate/v1
	Kind       string          `json:"kind"`       // Preview
	Count      map[Outcome]int `json:"count"`      // nodes by outcome
	Nodes      []Forecast      `json:"nodes"`      // in the order of the recordings
}

// JSON writes the nodes as a document for other tools.
func JSON(w io.Writer, nodes []Forecast) error {
	return report.JSON(w, document{report.APIVersion, "Preview", countOutcomes(nodes), nodes})
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

// Text writes one line for each reason, worst first, and the nodes that have this
// reason.
func Text(w io.Writer, nodes []Forecast, all bool, paint report.Paint) error {
	type line struct {
		Reason
		nodes []string
	}
	var lines []*line
	by := map[Reason]*line{}
	for _, n := range nodes {
		for _, r := range n.Reasons {
			if by[r] == nil {
				by[r] = &line{Reason: r}
				lines = append(lines, by[r])
			}
			by[r].nodes = append(by[r].nodes, n.Name)
		}
	}
	slices.SortStableFunc(lines, func(a, b *line) int {
		return cmp.Or(slices.Index(Outcomes(), a.Outcome)-slices.Index(Outcomes(), b.Outcome), len(b.nodes)-len(a.nodes))
	})
	colours := map[Outcome]string{Held: report.Red, Unknown: report.Yellow, Changed: report.Green}
	var out bytes.Buffer
	for _, l := range lines {
		names := l.nodes
		more := ""
		if len(names) > fewNames && !all {
			names, more = names[:fewNames], fmt.Sprintf(" and %d more", len(names)-fewNames)
		}
		fmt.Fprintf(&out, "%s %6d  %s: %s\n%17s%s%s\n", paint(colours[l.Outcome], fmt.Sprintf("%-8s", l.Outcome)), len(l.nodes),
			escapeLine(l.Name), escapeLine(l.Text), "", escapeLine(strings.Join(names, " ")), more)
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
