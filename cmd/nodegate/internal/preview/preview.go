// Package preview predicts the effect of a new policy on nodes, from recordings of
// them: snapshots, and reports of an older policy.
package preview

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
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
	Name    string      `json:"name"`              // the node's name
	File    string      `json:"file"`              // of the recording
	Outcome Outcome     `json:"outcome"`           // held, unknown, changed or pass
	Reasons []Reason    `json:"reasons,omitempty"` // the reasons for the outcome, and other changes
	Report  report.Read `json:"-"`                 // settings that apply would change are warnings
}

// Reason is one requirement and its effect on the node.
type Reason struct {
	Outcome Outcome `json:"outcome"` // of this requirement
	Name    string  `json:"name"`    // of the requirement
	Text    string  `json:"text"`    // what would happen
}

// Policy is the new policy.
type Policy struct{ policy.Source }

// Document is a file with a snapshot or with reports.
type Document struct {
	Name string
	Text []byte
}

// Nodes returns the forecasts for the nodes of the documents, in the order of the documents.
// It returns an error for each unreadable document, each node in more than one document, and each mistake in the policy.
func (p Policy) Nodes(ctx context.Context, count int, read func(i int) (Document, error)) ([]Forecast, []error) {
	nodes, errs := make([][]Forecast, count), make([]error, count)
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
		for _, n := range nodes[i] {
			if first, is := files[n.Name]; is {
				wrong = append(wrong, fmt.Errorf("%s: node %.200q is already recorded in %s; keep only the newer one", n.File, n.Name, first))
				continue
			}
			files[n.Name] = n.File
			all = append(all, n)
		}
		if errs[i] != nil {
			wrong = append(wrong, errs[i])
		}
	}
	return all, wrong
}

// forecastDocument returns the forecasts for one document. It recognises a snapshot by the first lines.
func (p Policy) forecastDocument(ctx context.Context, d Document) ([]Forecast, error) {
	if !bytes.Contains(d.Text[:min(len(d.Text), 512)], []byte(`"Snapshot"`)) {
		return p.forecastReports(d)
	}
	s, err := host.ReadSnapshot(bytes.NewReader(d.Text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.Name, err)
	}
	h := host.Replay(s)
	loaded, err := p.load(d.Name, func(name string) (any, bool) { return h.Fact(ctx, name) })
	if err != nil {
		return nil, err
	}
	found := checks.Inspect(ctx, h, checks.Boot, catalog.For(loaded, checks.Boot))
	return []Forecast{newNode(d.Name, found, report.New(h, loaded, found))}, nil
}

func (p Policy) load(node string, fact func(string) (any, bool)) (*policy.Policy, error) {
	loaded, diags := p.For(fact)
	if diags.HasErrors() {
		return nil, fmt.Errorf("the policy has mistakes on the node of %s: %w", node, diags)
	}
	return loaded, nil
}

// newNode returns the forecast for the results of an inspection. Settings that apply would change count as passing.
func newNode(file string, found checks.Outcome, r report.Report) Forecast {
	n := Forecast{Name: r.Node.Name, File: file, Outcome: Pass}
	if n.Name == "" {
		n.Name = file
	}
	stuck, changed := map[string]bool{}, map[string]bool{}
	blocked := map[Outcome]bool{}
	for i, res := range found.Results {
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
			to := &r.Results[i]
			to.Verdict, to.Got, to.Because, to.Remedy = verdict.Warn, reason.Text, "", ""
		}
		if reason.Outcome != Changed {
			stuck[res.Name] = true
			if res.Metadata.Severity == policy.Warn { // a warning holds no node
				to := &r.Results[i]
				to.Verdict, to.Skipped = verdict.Skipped, "does not pass, but does not hold the node: "+reason.Text
				continue
			}
			if res.State.Cause != "" && stuck[res.State.Cause] {
				continue // only list the cause
			}
		}
		blocked[reason.Outcome] = true
		n.Reasons = append(n.Reasons, reason)
	}
	for _, o := range Outcomes() {
		if blocked[o] {
			n.Outcome = o
			break
		}
	}
	r.Verdict = map[Outcome]verdict.Verdict{Held: verdict.Fail, Unknown: verdict.Unknown, Changed: verdict.Pass, Pass: verdict.Pass}[n.Outcome]
	n.Report = report.Read{Report: r, File: file}
	return n
}
