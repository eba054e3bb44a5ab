package fleet_test

import (
	"fmt"
	"strings"
	"testing"

	"nodegate/cmd/nodegate/internal/fleet"
	"nodegate/cmd/nodegate/internal/report"
	"nodegate/internal/assert"
	"nodegate/internal/require"
	"nodegate/internal/verdict"
)

func TestMergeRejectsTwoOfOneNode(t *testing.T) {
	reports, err := report.Decode("f.json", strings.NewReader(
		reportOf(t, "a", "boot", pass("x", "1"))+reportOf(t, "b", "boot", pass("x", "1"))+reportOf(t, "a", "boot", pass("x", "2"))))
	require.NoError(t, err)
	f, errs := fleet.Merge(reports)
	if len(errs) != 1 || errs[0].Error() != `f.json:3:1: node "a" already has a report in f.json; keep only the newer one` ||
		len(f.Nodes) != 2 || f.Checks[0].Kind != fleet.Alike {
		t.Errorf("%v, %+v", errs, f)
	}
}

// FuzzMerge: every file yields an error, or a table that can be written.
func FuzzMerge(f *testing.F) {
	f.Add([]byte(strings.Join(farm(f, 4, 8), "")))
	f.Add([]byte(`{"apiVersion":"nodegate/v1","kind":"Report","verdict":"pass","results":[{"name":"a","verdict":"skipped"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		reports, _ := report.Decode("f", strings.NewReader(string(text)))
		merged, _ := fleet.Merge(reports)
		if len(merged.Nodes) == 0 {
			return
		}
		in := 0
		for _, g := range merged.Groups {
			in += len(g.Nodes)
		}
		require.True(t, in == len(merged.Nodes), "%d of %d nodes are in a group", in, len(merged.Nodes))
		asText(t, merged, true)
	})
}

// TestTooManyChecks: Merge leaves out reports with too many checks that no other node has, and names them, before it builds the
// table; the other reports are shown.
func TestTooManyChecks(t *testing.T) {
	var reports []report.Read
	for n := range 200 {
		r := report.Read{File: fmt.Sprintf("file-%d", n)}
		r.Node.Name = fmt.Sprintf("node-%d", n)
		for i := range 500 {
			r.Results = append(r.Results, report.Result{Name: fmt.Sprintf("own.%d-%d", n, i), Verdict: verdict.Pass})
		}
		reports = append(reports, r)
	}
	f, errs := fleet.Merge(reports)
	assert.True(t, len(f.Nodes) == 20 && len(errs) == 180 && strings.Contains(errs[0].Error(), "file-20: report left out: "),
		"%d nodes, %d errors, the first: %v", len(f.Nodes), len(errs), errs[0])
}
