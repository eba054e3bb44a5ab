package audit

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"nodegate/internal/kube"
	"nodegate/internal/settle"
)

// TestWritten: kube-proxy's figures count in IPVS mode only, each for its family; before 1.33 there is one for both.
func TestWritten(t *testing.T) {
	const last = "kubeproxy_sync_proxy_rules_last_%stimestamp_seconds%s %d\n"
	at := func(s int64, waits bool) settle.Written { return settle.Written{At: time.Unix(s, 0), Waits: waits} }
	for _, c := range []struct {
		what, mode, page string
		want             map[string]settle.Written
	}{
		{"two families", "ipvs", fmt.Sprintf(last+last+last+last, "", `{ip_family="IPv4"}`, 50, "queued_", `{ip_family="IPv4"}`, 60, "", `{ip_family="IPv6"}`, 40,
			"queued_", `{ip_family="IPv6"}`, 30), map[string]settle.Written{"ip": at(50, true), "ip6": at(40, false)}},
		{"one figure", "ipvs", fmt.Sprintf(last+last, "", "", 50, "queued_", "", 60), map[string]settle.Written{"ip": at(50, true), "ip6": at(50, true)}},
		{"another mode", "iptables", fmt.Sprintf(last, "", "", 50), nil},
		{"another program", "ipvs", "up 1\n", map[string]settle.Written{}},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, c.page) }))
		n := Node{Presence: kube.Presence{Metrics: server.URL}, mode: c.mode}
		if got := n.Written(); !maps.EqualFunc(got, c.want, func(a, b settle.Written) bool { return a.At.Equal(b.At) && a.Waits == b.Waits }) {
			t.Errorf("%s: %+v, want %+v", c.what, got, c.want)
		}
		server.Close()
		if got := n.Written(); len(got) != 0 {
			t.Errorf("%s: %+v without an answer", c.what, got)
		}
	}
}
