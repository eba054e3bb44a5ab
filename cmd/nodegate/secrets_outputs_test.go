package main

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/checks/checkstest"
	"nodegate/cmd/nodegate/internal/fleet"
	"nodegate/cmd/nodegate/internal/preview"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/cmd/nodegate/internal/watch"
	"nodegate/internal/audit"
	"nodegate/internal/host"
	"nodegate/policy"
)

func secretsLoad(t *testing.T) *policy.Policy { return checkstest.Load(t, secretsPolicy()) }

// secretsRun is a run of checks on a node with canaries.
type secretsRun struct {
	t      *secretsTest
	where  string
	policy *policy.Policy
	list   []checks.Check
	host   *host.Host
	brief  bool // only search the documents from which the other outputs are written
}

// search writes an output and searches it.
func (r *secretsRun) search(output string, write func(*bytes.Buffer) error) {
	r.t.Helper()
	var b bytes.Buffer
	if err := write(&b); err != nil {
		r.t.Errorf("%s: %s: %v", r.where, output, err)
	}
	r.t.search(r.where, output, b.String())
}

// outputs searches what every verb makes of the run, the snapshot, and the run on it.
func (r *secretsRun) outputs() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	found := checks.Inspect(ctx, r.host, checks.All, r.list)
	document := report.New(r.host, r.policy, found)
	r.search("check json", func(b *bytes.Buffer) error { return report.JSON(b, document) })
	if !r.brief {
		r.reports("", document)
		r.ofNode(found, document)
	}
	r.recorded()
}

// recorded searches a snapshot, the run that records it, and what verbs make of it.
func (r *secretsRun) recorded() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	recording, s := host.Record(r.host)
	document := report.New(recording, r.policy, checks.Inspect(ctx, recording, checks.All, r.list))
	r.search("check --snapshot, json", func(b *bytes.Buffer) error { return report.JSON(b, document) })
	if !r.brief {
		r.reports("check --snapshot, ", document)
	}
	var snapshot bytes.Buffer
	r.search("snapshot", func(b *bytes.Buffer) error {
		err := report.JSON(b, s)
		snapshot = *bytes.NewBuffer(bytes.Clone(b.Bytes()))
		return err
	})
	r.search("snapshot --show", func(b *bytes.Buffer) error { return s.Contents(b) })
	p := preview.Policy{Source: policy.Read([]policy.File{{Name: "new.hcl", Text: []byte(secretsPolicy())}}, policy.Options{Checks: catalog.Known().Checks})}
	if len(r.list) == len(catalog.For(r.policy, checks.All)) { // previews take all checks
		nodes, errs := p.Nodes(ctx, 1, func(int) (preview.Document, error) { return preview.Document{Name: "n", Text: snapshot.Bytes()}, nil })
		r.search("preview json", func(b *bytes.Buffer) error { fmt.Fprint(b, errs); return report.JSON(b, preview.NewSummary(nodes)) })
		r.search("preview text", func(b *bytes.Buffer) error { return preview.Text(b, nodes, true, report.Plain) })
	}
}

// reports searches a report in every format.
func (r *secretsRun) reports(of string, document report.Report) {
	r.t.Helper()
	for _, format := range []string{"text", "json", "junit", "prometheus"} {
		write := report.Renderer(format, report.Plain, true)
		r.search(of+"check "+format, func(b *bytes.Buffer) error { return write(b, document) })
	}
}

// ofNode searches the outputs of gate, apply, watch and plan, and tables of nodes.
func (r *secretsRun) ofNode(found checks.Outcome, document report.Report) {
	r.t.Helper()
	r.search("plan", func(b *bytes.Buffer) error { return report.NewPlan(found).Text(b, report.Plain, nil) })
	r.search("journal of gate and watch", func(b *bytes.Buffer) error {
		for _, res := range found.Results {
			m := report.NewMessage(res)
			fmt.Fprintln(b, m.Text, m.Fields)
		}
		return nil
	})
	r.search("changes.jsonl", func(b *bytes.Buffer) error {
		for _, res := range found.Results {
			fmt.Fprintln(b, report.Made(res, res.State.Changes))
		}
		return nil
	})
	r.search("console of gate", func(b *bytes.Buffer) error { fmt.Fprint(b, report.Blocking(found, nil)); return nil })
	r.search("console report", func(b *bytes.Buffer) error {
		lines, err := report.ConsoleReport(document)
		if err != nil {
			return err
		}
		for _, line := range lines {
			fmt.Fprintln(b, line)
		}
		reports, err := report.DecodeConsole("console", bytes.NewReader(bytes.Clone(b.Bytes())))
		fmt.Fprint(b, reports)
		return err
	})
	s := watch.Status{Policy: r.policy, Report: found}
	d := s.Document(r.host)
	r.search("status json", func(b *bytes.Buffer) error { return report.JSON(b, d) })
	r.search("status text", func(b *bytes.Buffer) error { return d.Text(b, time.Now(), report.Plain, "nodegate-watch.service") })
	r.search("metrics", func(b *bytes.Buffer) error { return d.Metrics(b) })
	r.search("unit status", func(b *bytes.Buffer) error { fmt.Fprint(b, d.Line()); return nil })
	r.search("condition", func(b *bytes.Buffer) error { fmt.Fprint(b, s.Publication(r.host)); return nil })
	merged, errs := fleet.Merge([]report.Read{{File: "a", Report: document}})
	r.search("report text", func(b *bytes.Buffer) error { return fleet.Text(b, merged, true, report.Plain) })
	r.search("report json", func(b *bytes.Buffer) error { fmt.Fprint(b, errs); return report.JSON(b, fleet.NewDocument(merged)) })
}

// audit searches the outputs of audit.
func (r *secretsRun) audit() {
	r.t.Helper()
	rep, err := audit.NewMachine(r.host).Rules(r.t.Context())
	if err != nil {
		r.t.search(r.where, "audit error", err.Error())
		return
	}
	document := report.NewAudit(r.host, &rep, audit.Covered{}, time.Now())
	r.reports("audit as ", document)
	r.search("audit text", func(b *bytes.Buffer) error { return report.AuditSummary(b, &rep, true) })
	r.search("audit tree", func(b *bytes.Buffer) error { return report.ServiceTree(b, &rep) })
}
