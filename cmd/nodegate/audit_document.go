package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"nodegate/checks"
	"nodegate/checks/kubeproxy"
	"nodegate/internal/host"
	"nodegate/policy"
)

// auditDetail is what a report of the audit has beside its results.
type auditDetail struct {
	Mode     string              `json:"mode"`
	Version  string              `json:"version"`
	Services []kubeproxy.Service `json:"services"`
}

// covered is what there was to compare the rules with.
type covered struct{ truth, services, health, log bool }

// auditDocument is the audit in the form of every other report: a result for
// each kind of finding.
func auditDocument(h *host.Host, rep *kubeproxy.Report, c covered, began time.Time) document {
	r := checks.Report{Started: began, Duration: time.Since(began), Stage: checks.Run}
	for _, k := range kubeproxy.Kinds() {
		r.Results = append(r.Results, auditResult(k, rep, c))
	}
	d := newDocument(h, &policy.Policy{Files: []string{}}, r)
	d.Audit = &auditDetail{rep.Mode, rep.Version.String(), rep.Services}
	if d.Audit.Services == nil {
		d.Audit.Services = []kubeproxy.Service{}
	}
	return d
}

func auditResult(k kubeproxy.Kind, rep *kubeproxy.Report, c covered) checks.Result {
	res := checks.Result{Name: k.Name, Verdict: checks.Pass, Metadata: policy.Metadata{Severity: policy.Block, Reason: k.Summary, Ref: k.Ref}}
	res.State = checks.State{Want: "none", Got: "none", Skip: notCovered(k.Name, rep.Mode, c)}
	if k.Verdict == kubeproxy.Warn {
		res.Metadata.Severity = policy.Warn
	}
	found := 0
	for _, f := range rep.Findings {
		if f.Name != k.Name {
			continue
		}
		found++
		if found <= 20 {
			res.State.Evidence = append(res.State.Evidence, checks.Evidence{Source: where(f), Text: f.Message})
		}
		res.State.Remedy = f.Remedy
		res.Verdict = max(res.Verdict, verdictOf(f.Verdict))
		if f.Verdict == kubeproxy.Unknown && res.Verdict == checks.Pass {
			res.Verdict = checks.Unknown
		}
	}
	switch {
	case found > 0:
		res.State.Got, res.State.Skip = count(found, "finding"), ""
	case res.State.Skip != "":
		res.Verdict = checks.Skip
	}
	return res
}

func verdictOf(v kubeproxy.Verdict) checks.Verdict {
	switch v {
	case kubeproxy.Warn:
		return checks.Warn
	case kubeproxy.Fail:
		return checks.Fail
	}
	return checks.Unknown
}

// where is a finding's place in the rules.
func where(f kubeproxy.Finding) string {
	var parts []string
	for _, p := range []string{f.Service, f.Family, f.Table, f.Chain} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	if f.Line > 0 {
		parts = append(parts, fmt.Sprintf("line %d", f.Line))
	}
	if f.Rule != "" {
		parts = append(parts, f.Rule)
	}
	return strings.Join(parts, " ")
}

// notCovered says why a kind of finding could not have been made.
func notCovered(name, mode string, c covered) string {
	switch {
	case mode == "" && !strings.HasPrefix(name, "kubeproxy.sync.") && !strings.HasPrefix(name, "kubeproxy.watch."):
		return "there are no rules to judge"
	case strings.HasPrefix(name, "kubeproxy.nft.") && mode != "nftables":
		return "not in nftables mode"
	case strings.HasPrefix(name, "kubeproxy.truth.endpoint") && !c.truth:
		return "not compared with the API: give --endpoints, --kubeconfig or --in-cluster"
	case strings.HasPrefix(name, "kubeproxy.truth.service") && !c.services && !c.truth:
		return "not compared with the API: give --services, --kubeconfig or --in-cluster"
	case name == "kubeproxy.watch.failing" && !c.log:
		return "kube-proxy's log was not read"
	case name == "kubeproxy.watch.dead" && (!c.truth || !c.health):
		return "needs the API and kube-proxy's own endpoints"
	case strings.HasPrefix(name, "kubeproxy.sync.") && !c.health:
		return "kube-proxy was not asked"
	}
	return ""
}

// auditRenderer is the writer of the asked format.
func (o *auditOptions) auditRenderer(stdout io.Writer) (func(io.Writer, *kubeproxy.Report, document) error, error) {
	switch {
	case o.service != "":
		return func(w io.Writer, rep *kubeproxy.Report, _ document) error { return kubeproxy.Tree(w, rep, o.service) }, nil
	case o.format == "dot":
		return func(w io.Writer, rep *kubeproxy.Report, _ document) error { return kubeproxy.DOT(w, rep) }, nil
	case o.format == "text":
		return func(w io.Writer, rep *kubeproxy.Report, d document) error {
			if err := kubeproxy.Summary(w, rep, o.verbose); err != nil {
				return err
			}
			return writeAuditTotal(w, d)
		}, nil
	}
	render, err := o.renderer(stdout)
	if err != nil {
		return nil, fmt.Errorf("--format is text, json, junit, tap, prometheus, npd or dot; %q is none of them", o.format)
	}
	return func(w io.Writer, _ *kubeproxy.Report, d document) error { return render(w, d) }, nil
}

func writeAuditTotal(w io.Writer, d document) error {
	t := text{paint: painter(w)}
	t.total(d)
	_, err := fmt.Fprintf(w, "\n%s", t.String())
	return err
}
