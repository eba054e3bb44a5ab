package report

import (
	"strings"
	"testing"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/require"
	"nodegate/internal/verdict"
)

// TestSeriesApart: the files that watch, audit and check write for one machine share no series: node_exporter rejects duplicate series.
func TestSeriesApart(t *testing.T) {
	results := []Result{{Name: "sysctl.net.ipv4.ip_forward", Verdict: verdict.Pass, Severity: "block"}}
	var b strings.Builder
	for _, r := range []Report{
		{Stage: "image", Results: results, Version: "0.3.0", Policy: Policy{Digest: "0a1b2c3d4e5f"}}, {Stage: "boot", Results: results}, {Stage: "run", Results: results},
		{Stage: "all", Results: results}, {Stage: "run", Results: results, Audit: &Audit{}},
	} {
		require.NoError(t, writePrometheus(&b, r))
	}
	w := Watch{Report: Report{Stage: "run", Results: results}, Watching: Watching{Since: time.Unix(1, 0)}}
	require.NoError(t, w.Metrics(&b))
	seen := map[string]bool{}
	for line := range strings.Lines(b.String()) {
		series, _, _ := strings.Cut(line, "} ")
		assert.True(t, strings.HasPrefix(line, "#") || !seen[series], "duplicate series %s", series)
		seen[series] = true
	}
	assert.True(t, len(seen) >= 6*6, "only %d series:\n%s", len(seen), b.String())
	if n := strings.Count(b.String(), "\nnodegate_requirement{"); n != 6 { // no series for a verdict that it does not have
		t.Errorf("%d series for the requirement's verdict in 6 documents", n)
	}
	assert.Contains(t, b.String(), "\n"+`nodegate_build_info{policy="0a1b2c3d4e5f",stage="image",version="0.3.0"} 1`+"\n", "the build is ")
}
