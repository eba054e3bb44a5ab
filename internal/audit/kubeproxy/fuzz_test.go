package kubeproxy

import (
	"bytes"
	"testing"
	"time"
)

// FuzzPages: no response in place of kube-proxy's makes the audit panic.
func FuzzPages(f *testing.F) {
	f.Add([]byte(`{"lastUpdated": "2026-01-02 03:04:05.6 +0000 UTC", "currentTime": "2026-01-02 03:04:05.6 +0000 UTC", "nodeEligible": `+
		`true}`), 200)
	f.Add([]byte("kubeproxy_sync_proxy_rules_last_timestamp_seconds 1.7e+09\nkubeproxy_sync_proxy_rules_iptables_restore_failures_total "+
		"3\n"), 503)
	f.Add([]byte(`E0102 03:04:05.678901       1 reflector.go:200] "Failed to watch" err="connection refused" type="*v1.EndpointSlice"`), 0)
	now := time.Unix(1_700_000_000, 0)
	f.Fuzz(func(_ *testing.T, text []byte, status int) {
		if h, err := ParseHealth(text, status); err == nil {
			JudgeHealth(h, now)
		}
		if m, err := ParseMetrics(bytes.NewReader(text)); err == nil {
			JudgeMetrics(m, now)
		}
		_, _ = JudgeLog(bytes.NewReader(text), Log{Now: now})
	})
}
