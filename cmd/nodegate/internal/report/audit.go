package report

import (
	"fmt"
	"strings"
	"time"

	"nodegate/checks"
	"nodegate/cmd/nodegate/internal/audit/settle"
	"nodegate/internal/host"
	"nodegate/internal/proxyrules"
	"nodegate/internal/verdict"
	"nodegate/policy"
)

// Audit holds the part of an audit report that its results do not contain.
type Audit struct {
	Mode      string               `json:"mode"`                // iptables, nftables or ipvs
	Version   string               `json:"version"`             // of kube-proxy, inferred from the rules
	Services  []proxyrules.Service `json:"services"`            // ports of Services in the rules
	Converged []settle.Converged   `json:"converged,omitempty"` // differed from the API, then matched
	Notes     []string             `json:"notes,omitempty"`     // about reading the rules
}

// Covered records which inputs the audit could compare the rules with.
type Covered struct{ Live, Endpoints, Services, Health, Log bool }

// NewAudit returns the audit as a Report, with one result for each kind of finding.
func NewAudit(h *host.Host, rep *proxyrules.Judgment, c Covered, began time.Time) Report {
	r := checks.Outcome{Started: began, Duration: time.Since(began), Stage: checks.Run}
	for _, k := range proxyrules.Kinds() {
		r.Results = append(r.Results, auditResult(k, rep, c))
	}
	out := New(h, &policy.Policy{Files: []string{}}, r)
	out.Audit = &Audit{Mode: rep.Mode, Version: rep.Version.String(), Services: rep.Services, Notes: rep.Notes}
	if out.Audit.Services == nil {
		out.Audit.Services = []proxyrules.Service{}
	}
	return out
}

func auditResult(k proxyrules.Kind, rep *proxyrules.Judgment, c Covered) checks.Result {
	res := checks.Result{Name: k.Name, Verdict: verdict.Pass, Metadata: policy.Metadata{Severity: policy.Block, Reason: k.Summary, Ref: k.Ref}}
	res.State = checks.State{Want: "none", Got: "none", Skip: notCovered(k.Name, rep.Mode, c)}
	if k.Verdict == verdict.Warn {
		res.Metadata.Severity = policy.Warn
	}
	found := 0
	for _, f := range rep.Findings {
		if f.Name != k.Name {
			continue
		}
		found++
		if found <= 20 {
			res.State.Evidence = append(res.State.Evidence, checks.Evidence{Source: findingPlace(f), Text: f.Message})
		}
		res.State.Remedy = f.Remedy
		res.Verdict = max(res.Verdict, f.Verdict)
		if f.Verdict == verdict.Unknown && res.Verdict == verdict.Pass {
			res.Verdict = verdict.Unknown
		}
	}
	switch {
	case found > 0:
		res.State.Got, res.State.Skip = Count(found, "finding"), ""
	case res.State.Skip != "":
		res.Verdict = verdict.Skipped
	}
	return res
}

// findingPlace returns the location of a finding in the rules.
func findingPlace(f proxyrules.Finding) string {
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
func notCovered(name, mode string, c Covered) string {
	switch {
	case strings.HasPrefix(name, "kubeproxy.process.") && !c.Live:
		return "the rules come from a file, not from this node"
	case (strings.HasPrefix(name, "kubeproxy.conntrack.") || strings.HasPrefix(name, "kubeproxy.healthport.")) && (!c.Live || !c.Endpoints):
		return "needs this node and the API; use --kubeconfig or --in-cluster"
	case mode == "" && !strings.HasPrefix(name, "kubeproxy.sync.") && !strings.HasPrefix(name, "kubeproxy.watch."):
		return "no kube-proxy rules found"
	case strings.HasPrefix(name, "kubeproxy.nft.") && mode != "nftables":
		return "not in nftables mode"
	case strings.HasPrefix(name, "kubeproxy.truth.endpoint") && !c.Endpoints:
		return "not compared with the API; use --endpoints, --kubeconfig or --in-cluster"
	case (strings.HasPrefix(name, "kubeproxy.truth.service") || name == "kubeproxy.truth.source-ranges") && !c.Services && !c.Endpoints:
		return "not compared with the API; use --services, --kubeconfig or --in-cluster"
	case strings.HasPrefix(name, "kubeproxy.truth.un") && !c.Endpoints:
		return "not compared with the API; use --kubeconfig or --in-cluster"
	case name == "kubeproxy.watch.failing" && !c.Log:
		return "kube-proxy's log was not read"
	case name == "kubeproxy.watch.dead" && (!c.Endpoints || !c.Health):
		return "needs the API and kube-proxy's own endpoints"
	case strings.HasPrefix(name, "kubeproxy.sync.") && !c.Health:
		return "kube-proxy's healthz and metrics were not read"
	}
	return ""
}
