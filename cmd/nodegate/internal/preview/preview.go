// Package preview predicts the effect of a new policy on nodes, from their snapshots.
package preview

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/host"
	"nodegate/internal/verdict"
	"nodegate/policy"
)

// Outcome is the result of a node's next start with the new policy.
type Outcome string

// The outcomes, worst first.
const (
	Held    Outcome = "held"    // a blocking requirement fails, and apply cannot make it pass
	Unknown Outcome = "unknown" // the recording lacks the facts
	Changed Outcome = "changed" // apply changes settings, after which the node passes
	Pass    Outcome = "pass"
)

// Outcomes returns all outcomes, worst first.
func Outcomes() []Outcome { return []Outcome{Held, Unknown, Changed, Pass} }

// Forecast is the predicted effect of the policy on one node.
type Forecast struct {
	Name    string   `json:"name"`              // the node's name
	File    string   `json:"file"`              // of the recording
	Outcome Outcome  `json:"outcome"`           // held, unknown, changed or pass
	Reasons []Reason `json:"reasons,omitempty"` // the reasons for the outcome, and other changes
}

// Reason is one requirement and its effect on the node.
type Reason struct {
	Outcome Outcome `json:"outcome"` // of this requirement
	Name    string  `json:"name"`    // of the requirement
	Text    string  `json:"text"`    // what would happen
}

// Policy is the new policy.
type Policy struct{ policy.Source }

// Document is a file with a snapshot.
type Document struct {
	Name string
	Text []byte
}

// Nodes returns the forecasts for the nodes of the documents, in the order of the documents.
// It returns an error for each unreadable document, each node in more than one document, and each mistake in the policy.
func (p Policy) Nodes(ctx context.Context, count int, read func(i int) (Document, error)) ([]Forecast, []error) {
	nodes, errs := make([]Forecast, count), make([]error, count)
	var work sync.WaitGroup
	next := make(chan int)
	for range runtime.GOMAXPROCS(0) {
		work.Go(func() {
			for i := range next {
				d, err := read(i)
				if err == nil {
					nodes[i], err = p.forecastDocument(ctx, d)
				}
				errs[i] = err
			}
		})
	}
	for i := range count {
		next <- i
	}
	close(next)
	work.Wait()
	var all []Forecast
	var wrong []error
	files := map[string]string{}
	for i := range nodes {
		n := nodes[i]
		first, twice := files[n.Name]
		switch {
		case errs[i] != nil:
			wrong = append(wrong, errs[i])
		case twice:
			wrong = append(wrong, fmt.Errorf("%s: node %.200q is already recorded in %s; keep only the newer one", n.File, n.Name, first))
		default:
			files[n.Name] = n.File
			all = append(all, n)
		}
	}
	return all, wrong
}

func (p Policy) forecastDocument(ctx context.Context, d Document) (Forecast, error) {
	s, err := host.ReadSnapshot(bytes.NewReader(d.Text))
	if err != nil {
		return Forecast{}, fmt.Errorf("%s: %w", d.Name, err)
	}
	h := host.Replay(s)
	loaded, diags := p.For(func(name string) (any, bool) { return h.Fact(ctx, name) })
	if diags.HasErrors() {
		return Forecast{}, fmt.Errorf("the policy has mistakes on the node of %s: %w", d.Name, diags)
	}
	found := checks.Inspect(ctx, h, checks.Boot, catalog.For(loaded, checks.Boot))
	return newNode(report.New(h, loaded, found).Node.Name, d.Name, found), nil
}

// newNode returns the forecast for the results of an inspection. Settings that apply would change count as passing.
func newNode(name, file string, found checks.Outcome) Forecast {
	n := Forecast{Name: cmp.Or(name, file), File: file, Outcome: Pass}
	stuck, changed := map[string]bool{}, map[string]bool{}
	for _, res := range found.Results {
		if res.Verdict == verdict.Pass || res.Verdict == verdict.Skipped {
			continue
		}
		reason := Reason{Name: res.Name, Outcome: Held, Text: res.State.Got + ", wants " + res.State.Want}
		switch {
		case res.Verdict == verdict.Unknown:
			reason.Outcome, reason.Text = Unknown, report.OneLine(res.Err.Error())
		case len(res.State.Changes) > 0 && !stuck[res.Follows], len(res.State.Changes) == 0 && changed[res.Follows]:
			changed[res.Name] = true
			reason.Outcome, reason.Text = Changed, res.State.Got+" -> "+res.State.Want
		}
		if reason.Outcome != Changed {
			stuck[res.Name] = true
			if res.Metadata.Severity == policy.Warn { // a warning holds no node
				continue
			}
			if res.State.Cause != "" && stuck[res.State.Cause] {
				continue // only list the cause
			}
		}
		if slices.Index(Outcomes(), reason.Outcome) < slices.Index(Outcomes(), n.Outcome) {
			n.Outcome = reason.Outcome
		}
		n.Reasons = append(n.Reasons, reason)
	}
	return n
}
