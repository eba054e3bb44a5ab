package audit

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"nodegate/internal/audit/kubeproxy"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/verdict"
)

// TestAsk checks that a waiting update is not reported as a fault during a long sync, or if it is
// written a little later.
func TestAsk(t *testing.T) {
	t.Parallel()
	page := func(queued, written time.Time) string {
		const last = "kubeproxy_sync_proxy_rules_last_%stimestamp_seconds %d\n"
		return fmt.Sprintf(last+last, "", written.Unix(), "queued_", queued.Unix())
	}
	now := time.Now()
	waiting, written := page(now.Add(-2*time.Minute), now.Add(-3*time.Minute)), page(now.Add(-2*time.Minute), now)
	const restore = "8 (b) R 7 8 7 0 -1 4194304 1 0 0 0 9000 50 0 0 20 0 1 0 6000 0" // 90.5 s of processor time, started 60 s after the boot
	for _, c := range []struct {
		what, writer string
		later        string // from the second query on
		verdict      verdict.Verdict
		asked        int32
	}{
		{"no sync", "", waiting, verdict.Fail, askLooks},
		{"just written", "", written, verdict.Pass, 2},
		{"one long sync", restore, waiting, verdict.Unknown, 1},
		{"a sync that waits", "8 (b) S 7 8 7 0 -1 4194304 1 0 0 0 9 50 0 0 20 0 1 0 6000 0", waiting, verdict.Fail, askLooks},
		{"no time", "", waiting, verdict.Unknown, 1},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := t.Context(), func() {}
			if c.what == "no time" {
				ctx, cancel = context.WithTimeout(ctx, time.Second)
			}
			defer cancel()
			var asked atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/healthz" {
					fmt.Fprint(w, `{"currentTime": "now"}`)
				} else if asked.Add(1) == 1 {
					fmt.Fprint(w, waiting)
				} else {
					fmt.Fprint(w, c.later)
				}
			}))
			defer server.Close()
			files := map[string]string{
				"/proc/self/ns/net": "-> net:[1]", "/proc/7/ns/net": "-> net:[1]", "/proc/8/ns/net": "-> net:[1]", "/proc/uptime": "210.00 1.00\n",
				"/proc/7/stat": "7 (a) S 1 7", "/proc/7/cmdline": "kube-proxy\x00",
			}
			if c.writer != "" {
				files["/proc/8/stat"], files["/proc/8/cmdline"] = c.writer, "iptables-restore\x00-w\x00"
			}
			n := Machine{Presence: kubeproxy.Presence{Host: (&hosttest.Machine{Files: files}).Host(), Healthz: server.URL + "/healthz",
				Metrics: server.URL}}
			got := n.Ask(ctx, func(err error) { t.Error(err) })
			worst := verdict.Pass
			for _, f := range got.Findings {
				if worst = f.Verdict; c.writer == restore && !strings.Contains(f.Message, "in a long sync (process 8, running for 150.0 s)") {
					t.Errorf("the message does not name the writer: %s", f.Message)
				}
			}
			if len(got.Findings) > 1 || worst != c.verdict || asked.Load() != c.asked {
				t.Errorf("asked %d times: %+v; want %s, %d times", asked.Load(), got.Findings, c.verdict, c.asked)
			}
		})
	}
}
