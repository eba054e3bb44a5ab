package kubeproxy_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"nodegate/internal/audit/kubeproxy"
	"nodegate/internal/audit/proxy"
	"nodegate/internal/require"
	"nodegate/internal/verdict"
)

func TestJudgeHealth(t *testing.T) {
	for _, h := range []struct {
		name, body string
		status     int
		want       string
	}{
		{"1.22",
			`{"lastUpdated": "2026-11-20 22:59:59.9 +0000 UTC m=+86400.1","currentTime": "2026-11-20 23:00:00 +0000 UTC m=+86400.2"}`, 200, ""},
		{"1.22, " +
			"503", `{"lastUpdated": "2026-11-20 22:40:59.9 +0000 UTC m=+86400.1","currentTime": "2026-11-20 23:00:00 +0000 UTC m=+86400.2"}`, 503,
			"kubeproxy.sync.unhealthy"},
		{"1.30",
			`{"lastUpdated": "2026-11-20 22:59:59.9 +0000 UTC m=+86400.1","currentTime": "2026-11-20 23:00:00 +0000 UTC m=+86400.2", ` +
				`"nodeEligible": true}`, 200, ""},
		{"1.30, not " +
			"eligible",
			`{"lastUpdated": "2026-11-20 22:59:59.9 +0000 UTC m=+86400.1","currentTime": "2026-11-20 23:00:00 +0000 UTC m=+86400.2", ` +
				`"nodeEligible": false}`, 503, "kubeproxy.sync.ineligible"},
		{"1.34",
			`{"lastUpdated":"2026-11-20T23:00:00Z","currentTime":"2026-11-20T23:00:00Z","nodeEligible":true,"healthy":true,` +
				`"status":{"IPv4":{"lastUpdated":"2026-11-20T22:30:00.5Z","healthy":true},` +
				`"IPv6":{"lastUpdated":"2026-11-20T22:30:00.5Z","healthy":true}}}`, 200, ""},
		{"1.34, IPv6 " +
			"stuck",
			`{"lastUpdated":"2026-11-20T22:30:00Z","currentTime":"2026-11-20T23:00:00Z","nodeEligible":true,"healthy":false,` +
				`"status":{"IPv4":{"lastUpdated":"2026-11-20T22:59:00Z","healthy":true},` +
				`"IPv6":{"lastUpdated":"2026-11-20T22:30:00Z","healthy":false}}}`, 503, "kubeproxy.sync.unhealthy"},
	} {
		t.Run(h.name, func(t *testing.T) {
			health, err := kubeproxy.ParseHealth([]byte(h.body), h.status)
			require.NoError(t, err)
			want(t, kubeproxy.JudgeHealth(health), h.want)
		})
	}
	if f := kubeproxy.UnreadableAnswer("localhost:10256/healthz", errors.New("connection refused")); f.Verdict != verdict.Unknown ||
		f.Name != "kubeproxy.sync.unreadable" {
		t.Errorf("%+v", f)
	}
	for _, body := range []string{"", "ok", `{"lastUpdated": 3}`, `{"lastUpdated": "soon"}`, "<html>"} {
		if _, err := kubeproxy.ParseHealth([]byte(body), 200); err == nil {
			t.Errorf("no error for %q", body)
		}
	}
}

func TestJudgeMetrics(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	const head = "# HELP kubeproxy_sync_proxy_rules_last_timestamp_seconds x\n# TYPE kubeproxy_sync_proxy_rules_last_timestamp_seconds " +
		"gauge\ngo_goroutines 8\n"
	for _, m := range []struct{ name, text, want string }{
		{"healthy", "kubeproxy_sync_proxy_rules_last_timestamp_seconds " +
			"1.7999990e+09\nkubeproxy_sync_proxy_rules_last_queued_timestamp_seconds 1.7999989e+09\n", ""},
		{"healthy, 1.33", "kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family=\"IPv4\"} " +
			"1.7999990e+09\nkubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family=\"IPv6\"} 1.7999990e+09\n", ""},
		{"just started", "kubeproxy_sync_proxy_rules_last_timestamp_seconds 0\nkubeproxy_sync_proxy_rules_last_queued_timestamp_seconds " +
			"1.79999999e+09\n", ""},
		{"never", "kubeproxy_sync_proxy_rules_last_timestamp_seconds 0\nkubeproxy_sync_proxy_rules_last_queued_timestamp_seconds 0\n",
			"kubeproxy.sync.never"},
		{"never, 1.33", "kubeproxy_network_programming_duration_seconds_count 0\n", "kubeproxy.sync.never"},
		{"stuck", "kubeproxy_sync_proxy_rules_last_timestamp_seconds " +
			"1.7999980e+09\nkubeproxy_sync_proxy_rules_last_queued_timestamp_seconds " +
			"1.7999990e+09\nkubeproxy_sync_proxy_rules_iptables_restore_failures_total 40\n", "kubeproxy.sync.stuck"},
		{"one family stuck", "kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family=\"IPv4\"} " +
			"1.7999990e+09\nkubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family=\"IPv6\"} " +
			"1.7999970e+09\nkubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family=\"IPv6\"} 1.7999980e+09\n",
			"kubeproxy.sync.stuck"},
		{"dead", "kubeproxy_sync_proxy_rules_last_timestamp_seconds " +
			"1.7999900e+09\nkubeproxy_sync_proxy_rules_last_queued_timestamp_seconds 1.7999899e+09\n", "kubeproxy.sync.dead"},
		{"failed before", "kubeproxy_sync_proxy_rules_last_timestamp_seconds " +
			"1.7999990e+09\nkubeproxy_sync_proxy_rules_iptables_restore_failures_total 3\n", "kubeproxy.sync.restore-failures"},
		{"nftables failed before", "kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family=\"IPv4\"} " +
			"1.7999990e+09\nkubeproxy_sync_proxy_rules_nftables_sync_failures_total{ip_family=\"IPv4\"} 3\n",
			"kubeproxy.sync.restore-failures"},
	} {
		t.Run(m.name, func(t *testing.T) {
			metrics, err := kubeproxy.ParseMetrics(strings.NewReader(head + m.text))
			require.NoError(t, err)
			want(t, kubeproxy.JudgeMetrics(metrics, now), m.want)
		})
	}
	for _, text := range []string{"", head, "kubeproxy_sync_proxy_rules_last_timestamp_seconds soon\n",
		"kubeproxy_sync_proxy_rules_last_timestamp_seconds{x\n", "kubeproxy_sync_proxy_rules_last_timestamp_seconds NaN\n"} {
		if _, err := kubeproxy.ParseMetrics(strings.NewReader(text)); err == nil {
			t.Errorf("no error for %q", text)
		}
	}
}

func TestDeadWatch(t *testing.T) {
	now := time.Now()
	rep := proxy.Judgment{Findings: []proxy.Finding{{Name: "kubeproxy.truth.endpoint-stale", Verdict: verdict.Fail, Service: "prod/np",
		Family: "ip"}}}
	f, ok := kubeproxy.DeadWatch(&rep, kubeproxy.Answers{}, now)
	if !ok || f.Name != "kubeproxy.watch.dead" {
		t.Fatalf("%+v", f)
	}
	for _, word := range []string{"kubectl cordon NODE", "scale-down-disabled=true", "delete pod"} {
		if !strings.Contains(f.Remedy, word) {
			t.Errorf("remedy %q lacks %q", f.Remedy, word)
		}
	}
	if _, ok := kubeproxy.DeadWatch(&rep, kubeproxy.Answers{Findings: []proxy.Finding{{Name: "kubeproxy.sync.stuck"}}}, now); ok {
		t.Error("a stuck sync is the cause, not a dead watch")
	}
	wrote := kubeproxy.Answers{Metrics: kubeproxy.Metrics{Families: map[string]kubeproxy.SyncMetrics{"IPv4": {LastSync: now}}}}
	if f, ok := kubeproxy.DeadWatch(&rep, wrote, now); ok {
		t.Errorf("rules were written just now: %+v", f)
	}
	broken := proxy.Judgment{Findings: []proxy.Finding{{Name: "kubeproxy.chain.damaged", Verdict: verdict.Fail, Service: "prod/np",
		Family: "ip"}}}
	if f, ok := kubeproxy.DeadWatch(&broken, kubeproxy.Answers{}, now); ok {
		t.Errorf("a broken chain is reported as a dead watch: %+v", f)
	}
	rep.Findings[0].Verdict = verdict.Unknown
	if f, ok := kubeproxy.DeadWatch(&rep, kubeproxy.Answers{}, now); ok {
		t.Errorf("a difference that is not certain is reported as a dead watch: %+v", f)
	}
}

// TestUnproven: only a difference from the API can be one that kube-proxy has yet to write.
func TestUnproven(t *testing.T) {
	found := []proxy.Finding{{Name: "kubeproxy.truth.endpoint-stale"}, {Name: "kubeproxy.chain.damaged"}}
	for i := range found {
		found[i].Remedy = "restart kube-proxy"
	}
	kubeproxy.Unproven(found)
	for i, f := range found {
		if again := strings.HasPrefix(f.Remedy, "check again first: "); again != (i < 1) || !strings.HasSuffix(f.Remedy, "restart kube-proxy") {
			t.Errorf("%s: %s", f.Name, f.Remedy)
		}
	}
}

// TestAgreed: failed requests prove nothing if the rules are right.
func TestAgreed(t *testing.T) {
	for other, want := range map[string]verdict.Verdict{
		"kubeproxy.sync.ineligible": verdict.Unknown, "kubeproxy.truth.endpoint-stale": verdict.Fail,
	} {
		found := []proxy.Finding{
			{Name: "kubeproxy.watch.failing", Verdict: verdict.Fail, Remedy: "restart"}, {Name: other, Verdict: verdict.Warn},
		}
		kubeproxy.Agreed(found)
		if got := found[0]; got.Verdict != want || !strings.HasSuffix(got.Remedy, "restart") || found[1].Verdict != verdict.Warn {
			t.Errorf("beside %s: %+v", other, found)
		}
	}
}

func FuzzOwnEndpoints(f *testing.F) {
	f.Add(`{"lastUpdated":"2026-11-20T23:00:00Z","currentTime":"2026-11-20T23:00:00Z","healthy":true,` +
		`"status":{"IPv4":{"lastUpdated":"2026-11-20T22:30:00.5Z","healthy":true}}}`)
	f.Add("kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family=\"IPv4\"} 1.7999990e+09\n")
	f.Fuzz(func(t *testing.T, text string) {
		if h, err := kubeproxy.ParseHealth([]byte(text), 200); err == nil {
			kubeproxy.JudgeHealth(h)
		}
		if m, err := kubeproxy.ParseMetrics(strings.NewReader(text)); err == nil {
			kubeproxy.JudgeMetrics(m, time.Now())
		}
	})
}

// want fails unless the findings have exactly these names, and each has a message and a remedy.
func want(t *testing.T, findings []proxy.Finding, names string) {
	t.Helper()
	var got []string
	for _, f := range findings {
		got = append(got, f.Name)
		if f.Message == "" || f.Remedy == "" {
			t.Errorf("finding without message or remedy: %+v", f)
		}
	}
	if strings.Join(got, " ") != names {
		t.Errorf("findings %q, want %q", got, names)
	}
}
