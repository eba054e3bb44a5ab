package preview_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/cmd/nodegate/internal/preview"
	"nodegate/internal/host"
	"nodegate/internal/require"
	"nodegate/policy"
)

// BenchmarkThousand measures the built-in policy on snapshots of 1,000 nodes: this machine, recorded at all stages, under different names.
func BenchmarkThousand(b *testing.B) {
	const count = 1000
	h, err := host.Open("/")
	require.NoError(b, err)
	defer h.Close()
	p := builtin(b)
	recording, s := host.Record(h)
	loaded, diags := p.For(nil)
	require.True(b, !diags.HasErrors(), "%v", diags)
	checks.Inspect(b.Context(), recording, checks.All, catalog.For(loaded, checks.All))
	text, err := json.MarshalIndent(s, "", "  ")
	require.NoError(b, err)
	name, err := h.Text("/proc/sys/kernel/hostname")
	require.NoError(b, err)
	for b.Loop() {
		nodes, errs := p.Nodes(b.Context(), count, func(i int) (preview.Document, error) {
			named := bytes.Replace(text, []byte(`"`+name+`\n"`), fmt.Appendf(nil, `"node%d\n"`, i), 1)
			return preview.Document{Name: fmt.Sprint(i), Text: named}, nil
		})
		require.True(b, len(errs) == 0 && len(nodes) == count, "%d nodes, %v", len(nodes), errs)
	}
	b.ReportMetric(float64(len(text))/1024, "KiB/snapshot")
}

func builtin(t testing.TB) preview.Policy {
	f, err := policy.Builtin("kubernetes")
	require.NoError(t, err)
	return preview.Policy{Source: policy.Read([]policy.File{f}, policy.Options{Checks: catalog.Names()})}
}
