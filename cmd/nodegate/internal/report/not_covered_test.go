package report

import (
	"strings"
	"testing"

	"nodegate/internal/audit"
)

// TestNotCovered lists the findings that an audit can make without one of its sources. Any other finding must be skipped: without
// its source it would always pass.
func TestNotCovered(t *testing.T) {
	all := audit.Covered{Live: true, Endpoints: true, Services: true, Health: true}
	const api, node = "not compared with the API", "needs this node and the API"
	for _, c := range []struct {
		name, mode string
		without    func(*audit.Covered)
		want       string // prefix; "" if the audit covers the finding
	}{
		{"kubeproxy.chain.missing", "iptables", func(c *audit.Covered) { *c = audit.Covered{} }, ""},
		{"kubeproxy.chain.missing", "", func(*audit.Covered) {}, "no kube-proxy rules found"},
		{"kubeproxy.sync.stuck", "", func(*audit.Covered) {}, ""},
		{"kubeproxy.sync.stuck", "iptables", func(c *audit.Covered) { c.Health = false }, "kube-proxy's healthz and metrics were not read"},
		{"kubeproxy.process.absent", "iptables", func(*audit.Covered) {}, ""},
		{"kubeproxy.process.absent", "iptables", func(c *audit.Covered) { c.Live = false }, "the rules come from a file"},
		{"kubeproxy.conntrack.stale", "iptables", func(*audit.Covered) {}, ""},
		{"kubeproxy.conntrack.stale", "iptables", func(c *audit.Covered) { c.Live = false }, node},
		{"kubeproxy.conntrack.stale", "iptables", func(c *audit.Covered) { c.Endpoints = false }, node},
		{"kubeproxy.truth.endpoint-stale", "iptables", func(*audit.Covered) {}, ""},
		{"kubeproxy.truth.endpoint-stale", "iptables", func(c *audit.Covered) { c.Services = false }, ""},
		{"kubeproxy.truth.endpoint-stale", "iptables", func(c *audit.Covered) { c.Endpoints = false }, api},
		{"kubeproxy.truth.service-missing", "iptables", func(c *audit.Covered) { c.Endpoints = false }, ""},
		{"kubeproxy.truth.service-missing", "iptables", func(c *audit.Covered) { c.Services = false }, api},
		{"kubeproxy.truth.source-ranges", "iptables", func(c *audit.Covered) { c.Services = false }, api},
		{"kubeproxy.truth.unanswered", "iptables", func(*audit.Covered) {}, ""},
		{"kubeproxy.truth.unanswered", "iptables", func(c *audit.Covered) { c.Endpoints = false }, api},
		{"kubeproxy.watch.failing", "iptables", func(*audit.Covered) {}, "only `watch`"},
		{"kubeproxy.watch.dead", "iptables", func(*audit.Covered) {}, ""},
		{"kubeproxy.watch.dead", "iptables", func(c *audit.Covered) { c.Health = false }, "needs the API and kube-proxy's own endpoints"},
		{"kubeproxy.watch.dead", "iptables", func(c *audit.Covered) { c.Endpoints = false }, "needs the API and kube-proxy's own endpoints"},
	} {
		covered := all
		c.without(&covered)
		if got := notCovered(c.name, c.mode, covered); (got == "") != (c.want == "") || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s in mode %q with %+v: %q, want %q", c.name, c.mode, covered, got, c.want)
		}
	}
}
