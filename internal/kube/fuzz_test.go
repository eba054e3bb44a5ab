package kube

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

func FuzzKubeconfig(f *testing.F) {
	f.Add([]byte("current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: {server: " +
		"https://h}}]\n" +
		"users: [{name: u, user: {token: t}}]\n"))
	dir := f.TempDir()
	f.Fuzz(func(_ *testing.T, text []byte) {
		var k kubeconfig
		if yaml.Unmarshal(text, &k) == nil {
			_, _ = k.client(dir+"/config", nil)
		}
	})
}

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
			_ = m.describeSync(now)
		}
		_, _ = JudgeLog(bytes.NewReader(text), Log{Now: now})
	})
}

func FuzzReason(f *testing.F) {
	f.Add("sysctl.net.ipv4.ip_forward")
	f.Fuzz(func(t *testing.T, name string) {
		const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
		if r := Reason(name); len(r) > 128 || strings.Trim(r, letters) != "" {
			t.Errorf("%q gives %q", name, r)
		}
	})
}
