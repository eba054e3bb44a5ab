package report_test

import (
	"strings"
	"testing"

	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/assert"
	"nodegate/internal/verdict"
)

// TestNPD: the npd line reports a pass only for a node that passes, even if every failure is a symptom of an unknown result, or no
// result explains the failure.
func TestNPD(t *testing.T) {
	fails := report.Result{Name: "sysctl.a", Verdict: verdict.Fail, Because: "module.b"}
	for want, r := range map[string]report.Report{
		"node policy passes":            {Verdict: verdict.Pass, Results: []report.Result{{Name: "swap", Verdict: verdict.Pass}}},
		"sysctl.a: because of module.b": {Verdict: verdict.Fail, Results: []report.Result{{Name: "module.b", Verdict: verdict.Unknown}, fails}},
		"module.b: want loaded, got it not": {Verdict: verdict.Fail, Results: []report.Result{fails, {Name: "module.b", Verdict: verdict.Fail,
			Want: "loaded", Got: "it not"}}},
		"the node's verdict is fail": {Verdict: verdict.Fail},
	} {
		write := report.Renderer("npd", report.Plain, false)
		var out strings.Builder
		err := write(&out, r)
		assert.True(t, err == nil && out.String() == want+"\n", "got %q, %v; want %q", out.String(), err, want)
	}
}
