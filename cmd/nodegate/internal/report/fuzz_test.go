package report

import (
	"bytes"
	"testing"
	"time"
)

// FuzzStatus: no status file makes a renderer panic.
func FuzzStatus(f *testing.F) {
	f.Add([]byte(`{"apiVersion": "nodegate/v1", "kind": "Watch", "lastRound": "2026-01-02T03:04:05Z", "fights": [{"name": "a"}],
		"report": {"apiVersion": "nodegate/v1", "kind": "Report", "verdict": "pass", "results": [{"name": "a", "verdict": "pass"}]}}`))
	now := time.Unix(1_770_000_000, 0)
	f.Fuzz(func(_ *testing.T, text []byte) {
		d, err := DecodeWatch(text)
		if err != nil {
			return
		}
		_ = d.Text(&bytes.Buffer{}, now, Plain, "nodegate-watch.service")
		_ = d.Metrics(&bytes.Buffer{})
		_ = d.Line()
	})
}
