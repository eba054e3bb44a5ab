package audit

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// TestDeleted checks that a node without rules fails if a kube-proxy runs there that has written rules, and is unknown
// otherwise.
func TestDeleted(t *testing.T) {
	const absent, deleted = "kubeproxy.rules.absent", "kubeproxy.rules.deleted"
	const wrote, queued = "kubeproxy_sync_proxy_rules_last_timestamp_seconds 50\n", "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds 50\n"
	for _, c := range []struct{ what, process, page, want string }{
		{"it wrote rules", "kube-proxy", wrote, deleted},
		{"k3s wrote rules", "k3s", wrote, deleted},
		{"before the first sync", "kube-proxy", queued, absent},
		{"another program answers", "kube-proxy", "up 1\n", absent},
		{"it does not run", "cilium-agent", wrote, absent},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, c.page) }))
		defer server.Close()
		m := &hosttest.Machine{Files: map[string]string{"/proc/7/stat": "7 (a) S 1 7", "/proc/7/cmdline": c.process + "\x00",
			"/proc/self/ns/net": "-> net:[1]", "/proc/7/ns/net": "-> net:[1]", "/proc/self/ns/pid": "-> pid:[4026531836]"}}
		n := NewMachine(m.Host())
		n.Presence.Metrics = server.URL
		rep, err := n.Rules(t.Context())
		require.NoError(t, err)
		if len(rep.Findings) != 1 || rep.Findings[0].Name != c.want {
			t.Errorf("%s: %+v, want %s", c.what, rep.Findings, c.want)
		}
	}
}
