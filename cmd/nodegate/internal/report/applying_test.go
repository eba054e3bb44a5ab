package report_test

import (
	"strings"
	"testing"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/checks/checkstest"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// TestNothingApplies: check and plan report that no requirement applies, so that a pass is not taken for a proof.
func TestNothingApplies(t *testing.T) {
	node := checkstest.Node(nil, map[string]string{"net/ipv4/ip_forward": "1"})
	for text, want := range map[string]bool{
		"module \"ip_vs\" { when = false }\nlink \"a\" {\n match { name = \"a\" }\n mtu = 1400\n}": true,
		"module \"ip_vs\" { when = false }\nsysctl \"net.ipv4.ip_forward\" { value = 1 }":          false,
	} {
		p := checkstest.Load(t, text)
		r := checks.Inspect(t.Context(), node.Host(), checks.Boot, catalog.For(p, checks.Boot))
		rep := report.Report{Stage: "boot", Verdict: r.Verdict()}
		for _, res := range r.Results {
			rep.Results = append(rep.Results, report.NewResult(res))
		}
		var check, plan strings.Builder
		require.NoError(t, rep.Text(&check, report.Plain, false))
		require.NoError(t, report.NewPlan(r).Text(&plan, report.Plain, nil))
		for _, out := range []string{check.String(), plan.String()} {
			assert.True(t, strings.Contains(out, "0 of 2 requirements apply here") == want, "%s:\n%s", text, out)
		}
	}
}
