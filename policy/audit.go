package policy

import (
	"cmp"
	"fmt"
	"path/filepath"
	"time"

	"github.com/hashicorp/hcl/v2"
)

// Audit configures watch to compare kube-proxy's rules with the API for as long as it runs.
type Audit struct {
	On         bool
	Kubeconfig string        // absolute; "": kube-proxy's own, or a Pod's service account
	Node       string        // its name in the API; "": Services that depend on it are compared without it
	Every      time.Duration // read the rules at least this often
	Settle     time.Duration // report a difference only after it has persisted this long
	Severity   Severity
	Range      hcl.Range
}

// describe returns the audit block as a phrase.
func (a Audit) describe() string {
	with := cmp.Or(a.Kubeconfig, "kube-proxy's own credentials")
	return fmt.Sprintf("with %s, differences reported after %s, rules read at least every %s", with, a.Settle, a.Every)
}

const (
	auditEvery  = 5 * time.Minute
	auditSettle = 15 * time.Second
)

func (r *reader) decodeAudit(b Stanza) Audit {
	a := Audit{
		On: true, Kubeconfig: r.kubeconfig(b), Node: r.nodeName(b), Range: b.Range,
		Severity: Severity(r.oneOf(b.Get("severity"), "severity", string(Block), string(Warn))),
	}
	if b.Get("zone") != nil {
		r.diags = append(r.diags, &hcl.Diagnostic{Severity: hcl.DiagWarning, Summary: "Dropped argument", Subject: b.At("zone").Ptr(),
			Detail: "nodegate does not compare topology hints any more, and needs no zone. Remove the line."})
	}
	a.Every = r.duration(b.Get("every"), "every", auditEvery, 10*time.Second, time.Hour)
	a.Settle = r.duration(b.Get("settle"), "settle", auditSettle, time.Second, time.Minute)
	return a
}

// kubeconfig reads the attribute kubeconfig.
func (r *reader) kubeconfig(b Stanza) string {
	name := r.text(b.Get("kubeconfig"), "kubeconfig")
	if name != "" && !filepath.IsAbs(name) {
		r.errorf(b.At("kubeconfig"), "Not an absolute path", "watch does not run in your directory: write an absolute path instead of %q.", name)
	}
	return name
}

// nodeName reads the attribute node.
func (r *reader) nodeName(b Stanza) string {
	name := r.text(b.Get("node"), "node")
	if name != "" && !isName(name, 253, "-.") {
		r.errorf(b.At("node"), "Not a node's name", "node must be the Node's metadata.name, as `kubectl get nodes` prints it; %q is not a "+
			"valid name.", name)
	}
	return name
}
