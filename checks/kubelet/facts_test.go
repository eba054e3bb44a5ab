package kubelet_test

import (
	"testing"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/checks/checkstest"
	"nodegate/internal/assert"
	"nodegate/internal/verdict"
)

// TestFacts: a unit that runs a script makes one result unknown. It does not hold the node, unless the policy says so.
func TestFacts(t *testing.T) {
	script := checkstest.Node(map[string]string{unitFile: "[Service]\nExecStart=/opt/start\n"}, nil)
	checkstest.RunOne(t, "kubelet.facts", checks.Run, []checkstest.Case{
		{What: "kubelet itself", Node: withUnit("", nil), Want: "pass\nwant: kubelet's command line is known\ngot: kubelet's command line is known"},
		{What: "a script", Node: script, Want: "unknown\nerror: kubelet's command line is unknown, so checks that need it are skipped: " +
			"kubelet.service runs /opt/start, not kubelet itself"},
		{What: "no unit", Node: checkstest.Node(nil, nil), Want: "skipped\nskipped: kubelet.service does not exist here"},
	})
	for policy, want := range map[string]verdict.Verdict{
		"check \"kubelet.facts\" {}": verdict.Pass, "check \"kubelet.facts\" {\n severity = \"block\"\n}": verdict.Unknown,
	} {
		list := catalog.For(checkstest.Load(t, policy), checks.Boot)
		assert.Equal(t, checks.Inspect(t.Context(), script.Host(), checks.Boot, list).Verdict(), want, "%s", policy)
	}
}
