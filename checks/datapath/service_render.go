package datapath

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// maxShown limits the endpoints that the text output names; the JSON output has all of them.
const maxShown = 10

// Summary is the result in one line.
func (r ServiceResult) Summary() string {
	if r.Attempts == 0 {
		return "no attempt was made"
	}
	high := percent(r.Rate.High)
	if r.Failed == 0 {
		return fmt.Sprintf("all %d connections succeeded (with 95 %% confidence at most %s %% fail); %s", r.Attempts, high,
			r.summarizeEndpoints())
	}
	return fmt.Sprintf("%d of %d failed (%s %%, 95 %% confidence %s to %s %%), %s", r.Failed, r.Attempts,
		percent(r.Rate.Fraction), percent(r.Rate.Low), high, r.describeFailing())
}

// describeFailing returns the endpoints of the failed attempts.
func (r ServiceResult) describeFailing() string {
	if r.Unknown.Failed == r.Failed {
		return "sent to unknown endpoints: " + r.Unknown.Why
	}
	failing := r.Failing()
	if len(r.Endpoints) == 1 && failing[0].Address == r.Target && r.Unknown.Failed == 0 {
		return "all sent to the address itself: conntrack has no translation"
	}
	var names []string
	for _, e := range failing[:min(len(failing), maxShown)] {
		names = append(names, e.Address.String())
	}
	if rest := len(failing) - maxShown; rest > 0 {
		names = append(names, fmt.Sprintf("and %d more", rest))
	}
	text := fmt.Sprintf("sent to %d of %d endpoints: %s", len(failing), len(r.Endpoints), strings.Join(names, ", "))
	if r.Unknown.Failed > 0 {
		return fmt.Sprintf("%s; %d of them to unknown endpoints: %s", text, r.Unknown.Failed, r.Unknown.Why)
	}
	return "all " + text
}

// summarizeEndpoints returns the number of endpoints that answered if no attempt failed.
func (r ServiceResult) summarizeEndpoints() string {
	switch {
	case len(r.Endpoints) == 0:
		return "the endpoints that answered are unknown: " + r.Unknown.Why
	case len(r.Endpoints) == 1 && r.Endpoints[0].Address == r.Target:
		return "the address itself answered: conntrack has no translation"
	case len(r.Endpoints) == 1:
		return "1 endpoint answered"
	}
	return fmt.Sprintf("%d endpoints answered", len(r.Endpoints))
}

// Render writes the result for people.
func (r ServiceResult) Render(w io.Writer) error {
	var b bytes.Buffer
	if r.OfNode {
		fmt.Fprintln(&b, "From the node itself, which cannot show faults between Pods of one node; --from NAMESPACE/POD connects from a Pod.")
	}
	fmt.Fprintf(&b, "%s\n", r.Summary())
	fmt.Fprintf(&b, "  %s (%s, %s) from %s, %d of %d attempts in %s\n", r.Address, r.Target, r.Proto, r.Source, r.Attempts, r.N, r.Duration)
	writeCounts(&b, "failures", r.Reasons)
	writeCounts(&b, "answers", r.Answers)
	if failing := r.Failing(); len(failing) > 0 {
		fmt.Fprintf(&b, "\n  %-28s %15s\n", "endpoint", "failed")
		for _, e := range failing[:min(len(failing), maxShown)] {
			fmt.Fprintf(&b, "  %-28s %6d of %5d\n", e.Address, e.Failed, e.Attempts)
		}
		if rest := len(failing) - maxShown; rest > 0 {
			fmt.Fprintf(&b, "  and %d more\n", rest)
		}
	}
	if l := r.Latency; l.Max > 0 {
		fmt.Fprintf(&b, "\n  latency min %s, median %s, 90 %% %s, 99 %% %s, max %s\n", l.Min, l.P50, l.P90, l.P99, l.Max)
	}
	if r.Failed > 0 {
		fmt.Fprintln(&b, "\n  run `nodegate audit`: it names the rule or route of this node that loses packets to Services")
	}
	_, err := w.Write(b.Bytes())
	return err
}

func writeCounts(b *bytes.Buffer, label string, counts map[string]int) {
	if len(counts) == 0 {
		return
	}
	var items []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		items = append(items, fmt.Sprintf("%s %d", name, counts[name]))
	}
	fmt.Fprintf(b, "  %s: %s\n", label, strings.Join(items, ", "))
}

// percent formats a fraction with one decimal, or with two significant digits below 0.1 %.
func percent(f float64) string {
	if p := f * 100; p > 0 && p < 0.1 {
		return fmt.Sprintf("%.2g", p)
	}
	return fmt.Sprintf("%.1f", f*100)
}
