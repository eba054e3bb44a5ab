package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"nodegate/checks"
	"nodegate/internal/audit"
	"nodegate/internal/host"
	"nodegate/internal/verdict"
	"nodegate/policy"
)

// Audit holds the part of an audit report that its results do not contain.
type Audit struct {
	Mode      string          `json:"mode"`                // iptables, nftables or ipvs
	Version   string          `json:"version"`             // of kube-proxy, inferred from the rules
	Services  []audit.Service `json:"services"`            // ports of Services in the rules
	Converged int             `json:"converged,omitempty"` // Service ports that differed from the API, then matched
	Notes     []string        `json:"notes,omitempty"`     // about reading the rules
}

// NewAudit returns the audit as a Report, with one result for each kind of finding.
func NewAudit(h *host.Host, rep *audit.Judgment, c audit.Covered, began time.Time) Report {
	r := checks.Outcome{Started: began, Duration: time.Since(began), Stage: checks.Run}
	for _, k := range audit.Kinds() {
		r.Results = append(r.Results, auditResult(k, rep, c))
	}
	out := New(h, &policy.Policy{Files: []string{}}, r)
	out.Audit = &Audit{Mode: rep.Mode, Version: rep.Version.String(), Services: rep.Services, Notes: rep.Notes}
	if out.Audit.Services == nil {
		out.Audit.Services = []audit.Service{}
	}
	return out
}

func auditResult(k audit.Kind, rep *audit.Judgment, c audit.Covered) checks.Result {
	res := checks.Result{Name: k.Name, Metadata: policy.Metadata{Severity: policy.Block, Reason: k.Summary, Ref: k.Ref}}
	res.State = checks.State{Want: "none", Got: "none", Skip: notCovered(k.Name, rep.Mode, c)}
	if k.Verdict == verdict.Warn {
		res.Metadata.Severity = policy.Warn
	}
	found := slices.DeleteFunc(slices.Clone(rep.Findings), func(f audit.Finding) bool { return f.Name != k.Name })
	var worst audit.Finding
	res.Verdict, worst = audit.Worst(found)
	AddFindings(&res.State, found, func(f audit.Finding) checks.Evidence {
		return checks.Evidence{Source: findingPlace(f), Text: f.Message}
	})
	switch {
	case len(found) > 0:
		res.State.Got, res.State.Skip, res.State.Remedy = Count(len(found), "finding"), "", worst.Remedy
	case res.State.Skip != "":
		res.Verdict = verdict.Skipped
	}
	return res
}

// AddFindings adds findings to the state of the result that they belong to, each as a line of evidence.
func AddFindings(s *checks.State, found []audit.Finding, line func(audit.Finding) checks.Evidence) {
	const most = 20
	for _, f := range found[:min(len(found), most)] {
		s.Evidence = append(s.Evidence, line(f))
	}
}

// findingPlace returns the location of a finding in the rules.
func findingPlace(f audit.Finding) string {
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

// notCovered returns why this audit cannot make findings of a kind, or "" if it can.
func notCovered(name, mode string, c audit.Covered) string {
	switch {
	case strings.HasPrefix(name, "kubeproxy.process.") && !c.Live:
		return "the rules come from a file, not from this node"
	case strings.HasPrefix(name, "kubeproxy.conntrack.") && (!c.Live || !c.Endpoints):
		return "needs this node and the API; use --kubeconfig or --in-cluster"
	case mode == "" && !strings.HasPrefix(name, "kubeproxy.sync.") && !strings.HasPrefix(name, "kubeproxy.watch."):
		return "no kube-proxy rules found"
	case strings.HasPrefix(name, "kubeproxy.truth.endpoint") && !c.Endpoints:
		return "not compared with the API; use --services and --endpoints, --kubeconfig or --in-cluster"
	case (strings.HasPrefix(name, "kubeproxy.truth.service") || name == "kubeproxy.truth.source-ranges") && !c.Services:
		return "not compared with the API; use --services, --kubeconfig or --in-cluster"
	case strings.HasPrefix(name, "kubeproxy.truth.un") && !c.Endpoints:
		return "not compared with the API; use --kubeconfig or --in-cluster"
	case name == "kubeproxy.watch.failing":
		return "only `watch` with an audit block counts kube-proxy's failed requests"
	case name == "kubeproxy.watch.dead" && (!c.Endpoints || !c.Health):
		return "needs the API and kube-proxy's own endpoints"
	case strings.HasPrefix(name, "kubeproxy.sync.") && !c.Health:
		return "kube-proxy's healthz and metrics were not read"
	}
	return ""
}
