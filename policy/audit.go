package policy

import (
	"cmp"
	"fmt"
	"path/filepath"
	"time"

	"github.com/hashicorp/hcl/v2"
)

// Audit says that watch compares kube-proxy's rules with the API for as long as it runs.
type Audit struct {
	On         bool
	Kubeconfig string        // absolute; "": kube-proxy's own, or a Pod's service account
	Node, Zone string        // this node's in the API; "": Services that depend on them are compared without
	Every      time.Duration // the rules are read at least this often
	Settle     time.Duration // a difference that stays the same for so long is a finding
	Severity   Severity
	Range      hcl.Range
}

// want returns the audit block in words.
func (a Audit) describe() string {
	return fmt.Sprintf("of %s, settled after %s, at least every %s", cmp.Or(a.Kubeconfig, "kube-proxy's own credentials"), a.Settle, a.Every)
}

const (
	auditEvery  = 5 * time.Minute
	auditSettle = 15 * time.Second
)

func (r *reader) decodeAudit(b block) Audit {
	a := Audit{
		On: true, Kubeconfig: r.kubeconfig(b), Node: r.nodeName(b), Range: b.Range,
		Severity: Severity(r.oneOf(b.get("severity"), "severity", string(Block), string(Warn))),
	}
	if a.Zone = r.text(b.get("zone"), "zone"); a.Zone != "" && !isName(a.Zone, 63, "-._") {
		r.errorf(b.at("zone"), "Not a zone", "zone is the Node's label topology.kubernetes.io/zone; %q is not one.", a.Zone)
	}
	a.Every = r.duration(b.get("every"), "every", auditEvery, 10*time.Second, time.Hour)
	a.Settle = r.duration(b.get("settle"), "settle", auditSettle, time.Second, time.Minute)
	return a
}

// kubeconfig reads the attribute of that name.
func (r *reader) kubeconfig(b block) string {
	name := r.text(b.get("kubeconfig"), "kubeconfig")
	if name != "" && !filepath.IsAbs(name) {
		r.errorf(b.at("kubeconfig"), "Not an absolute path",
			"watch runs in no folder of yours: write the whole path; %q is not one.", name)
	}
	return name
}

// nodeName reads the attribute node.
func (r *reader) nodeName(b block) string {
	name := r.text(b.get("node"), "node")
	if name != "" && !isName(name, 253, "-.") {
		r.errorf(b.at("node"), "Not a node's name", "node is the Node's metadata.name, as `kubectl get nodes` prints it; %q is not.", name)
	}
	return name
}
