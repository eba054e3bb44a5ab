package audit

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/audit/kubeproxy"
	"nodegate/internal/audit/proxy"
	"nodegate/internal/audit/settle"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
	"nodegate/internal/verdict"
)

// TestWritten checks that kube-proxy's metrics count for their family; before 1.33 both families
// share one metric. Except in IPVS mode, a sync is one program.
func TestWritten(t *testing.T) {
	const last = "kubeproxy_sync_proxy_rules_last_%stimestamp_seconds%s %d\n"
	at := func(ended, queued int64) settle.Written {
		return settle.Written{At: time.Unix(ended, 0), Queued: time.Unix(queued, 0)}
	}
	shared := at(50, 60)
	shared.Shared = true
	whole := at(50, 60)
	whole.Whole = true
	for _, c := range []struct {
		what, mode, page string
		families         int
		want             map[string]settle.Written
	}{
		{"two families", "ipvs", fmt.Sprintf(last+last+last+last, "", `{ip_family="IPv4"}`, 50, "queued_", `{ip_family="IPv4"}`, 60,
			"", `{ip_family="IPv6"}`, 40, "queued_", `{ip_family="IPv6"}`, 30),
			2, map[string]settle.Written{"ip": at(50, 60), "ip6": at(40, 30)}},
		{"one figure of two families", "ipvs", fmt.Sprintf(last+last, "", "", 50, "queued_", "", 60),
			2, map[string]settle.Written{"ip": shared, "ip6": shared}},
		{"one figure", "ipvs", fmt.Sprintf(last+last, "", "", 50, "queued_", "", 60),
			1, map[string]settle.Written{"ip": at(50, 60), "ip6": at(50, 60)}},
		{"another mode", "iptables", fmt.Sprintf(last+last, "", "", 50, "queued_", "", 60), 1, map[string]settle.Written{"ip": whole, "ip6": whole}},
		{"metrics of another program", "ipvs", "up 1\n", 1, map[string]settle.Written{}},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, c.page) }))
		n := Machine{Presence: kubeproxy.Presence{Metrics: server.URL}, mode: c.mode, families: c.families}
		if got := n.Written(); !maps.EqualFunc(got, c.want, func(a, b settle.Written) bool { return a == b }) {
			t.Errorf("%s: %+v, want %+v", c.what, got, c.want)
		}
		server.Close()
		if got := n.Written(); len(got) != 0 {
			t.Errorf("%s: %+v without an answer", c.what, got)
		}
	}
}

// TestBeLiberal checks that nf_conntrack_tcp_be_liberal is read each time, because kube-proxy may
// set it after watch has started.
func TestBeLiberal(t *testing.T) {
	text, err := os.ReadFile("proxy/testdata/iptables-save.txt")
	require.NoError(t, err)
	const drop = "-A KUBE-FORWARD -m conntrack --ctstate INVALID -m nfacct --nfacct-name  ct_state_invalid_dropped_pkts -j DROP\n"
	save := strings.Replace(string(text), drop, "", 1)
	m := &hosttest.Machine{Files: map[string]string{}, Rules: map[string]string{"iptables-nft-save": save}}
	n := NewMachine(m.Host())
	for _, c := range []struct{ value, want string }{
		{"", "kubeproxy.forward.be-liberal"}, {"0", "kubeproxy.forward.invalid-drop"}, {"1", ""}, {"0", "kubeproxy.forward.invalid-drop"},
	} {
		if c.value != "" {
			m.Sysctl("net/netfilter/nf_conntrack_tcp_be_liberal", c.value)
		}
		rep, err := n.Rules(t.Context())
		require.NoError(t, err)
		got := ""
		for _, f := range rep.Findings {
			got += f.Name
		}
		assert.Equal(t, got, c.want, "with value %q", c.value)
	}
}

// TestNoWayToExternal checks that kube-proxy's configuration explains unreferenced chains of
// external addresses.
func TestNoWayToExternal(t *testing.T) {
	text, err := os.ReadFile("proxy/testdata/fields-iptables.txt")
	require.NoError(t, err)
	save := regexp.MustCompile("-A KUBE-SERVICES .* external IP.*\n").ReplaceAllString(string(text), "")
	m := &hosttest.Machine{Files: map[string]string{}, Rules: map[string]string{"iptables-nft-save": save}}
	n := NewMachine(m.Host())
	for _, c := range []struct {
		gate  string
		found int
	}{{"true", 2}, {"false", 0}} {
		m.Files["/var/lib/kube-proxy/config.conf"] = "kind: KubeProxyConfiguration\nfeatureGates:\n  AllowServiceExternalIPs: " + c.gate + "\n"
		rep, err := n.Rules(t.Context())
		require.NoError(t, err)
		if len(rep.Findings) != c.found {
			t.Errorf("with the gate %s: %+v", c.gate, rep.Findings)
		}
		if off := c.gate == "false"; n.Live().NoExternalIPs != off {
			t.Errorf("with the gate %s the facts are %v", c.gate, !off)
		}
	}
}

// TestWrittenSlow checks that changes may be waiting if kube-proxy is too slow to answer, but not
// if its process is stopped.
func TestWrittenSlow(t *testing.T) {
	hanging, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = hanging.Close() }()
	for state, want := range map[string]bool{"S": true, "R": true, "T": false} {
		m := &hosttest.Machine{Files: map[string]string{"/proc/7/stat": "7 (a) " + state + " 1 7", "/proc/7/cmdline": "kube-proxy\x00",
			"/proc/self/ns/net": "-> net:[1]", "/proc/7/ns/net": "-> net:[1]"}}
		n := Machine{Presence: kubeproxy.Presence{Host: m.Host(), Metrics: "http://" + hanging.Addr().String()}, mode: "ipvs"}
		got := n.Written()
		if recent := time.Since(got["ip"].Queued) < time.Minute && got["ip"] == got["ip6"]; recent != want {
			t.Errorf("in state %s: %+v", state, got)
		}
		n.mode = "nftables"
		if got := n.Written(); len(got) != 0 || n.silent.IsZero() != (state == "T") {
			t.Errorf("nftables, in state %s: %+v; queried again at once: %v", state, got, n.silent.IsZero())
		}
	}
}

// TestUnwritten checks that metrics show, for each family, whether a table without kube-proxy rules
// was flushed or not yet written.
func TestUnwritten(t *testing.T) {
	const flushed, unwritten = "kubeproxy.table.flushed", "kubeproxy.table.unwritten"
	for _, c := range []struct{ what, page, ip, ip6 string }{
		{"never", "kubeproxy_sync_proxy_rules_last_timestamp_seconds 0\n", unwritten, unwritten},
		{"one family", `kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv4"} 50` + "\n" +
			`kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family="IPv6"} 40` + "\n", flushed, unwritten},
		{"no metrics yet", "up 1\nkubeproxy_sync_proxy_rules_service_changes_pending 0\n", unwritten, unwritten},
		{"both", "kubeproxy_sync_proxy_rules_last_timestamp_seconds 50\n", flushed, flushed},
		{"metrics of another program", "up 1\n", flushed, flushed},
		{"not a number", "up 1\nkubeproxy_sync_proxy_rules_last_timestamp_seconds x\n", flushed, flushed},
		{"a truncated page", "up 1\nkubeproxy_sync_proxy_rules_last_timestamp_sec", flushed, flushed},
		{"not text", "\x00\xff\n\n", flushed, flushed},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, c.page) }))
		n := Machine{Presence: kubeproxy.Presence{Metrics: server.URL}}
		for _, answers := range []bool{true, false} {
			if !answers {
				server.Close()
				c.ip, c.ip6 = flushed, flushed
			}
			rep := proxy.Judgment{Findings: []proxy.Finding{
				{Name: flushed, Family: "ip", Table: "nat", Message: "m"}, {Name: "kubeproxy.canary.missing", Family: "ip"},
				{Name: flushed, Family: "ip6", Table: "nat", Message: "m"},
			}}
			n.explainMissing(t.Context(), &rep)
			got := []string{rep.Findings[0].Name, rep.Findings[1].Name, rep.Findings[2].Name}
			if want := []string{c.ip, "kubeproxy.canary.missing", c.ip6}; !slices.Equal(got, want) {
				t.Errorf("%s, it answers: %v: %v, want %v", c.what, answers, got, want)
			}
			for _, f := range rep.Findings {
				if f.Name == unwritten && (f.Verdict != verdict.Fail || f.Means == "" || strings.Contains(f.Remedy, "delete")) {
					t.Errorf("%s: %+v", c.what, f)
				}
			}
		}
	}
}

// TestWrote checks that only metrics of one family show whether kube-proxy serves it, and that the
// report of a live node uses them.
func TestWrote(t *testing.T) {
	const last = "kubeproxy_sync_proxy_rules_last_%stimestamp_seconds%s 50\n"
	for page, want := range map[string]string{
		fmt.Sprintf(last, "", ""):                          "false false",
		fmt.Sprintf(last, "", `{ip_family="IPv4"}`):        "false false",
		fmt.Sprintf(last, "", `{ip_family="IPv6"}`):        "true true",
		fmt.Sprintf(last, "queued_", `{ip_family="IPv6"}`): "false true",
		"": "false false",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, page) }))
		n := NewMachine((&hosttest.Machine{Files: map[string]string{}}).Host())
		n.Presence.Metrics = server.URL
		if _, err := n.Rules(t.Context()); err != nil {
			t.Fatal(err)
		}
		assert.Equal(t, fmt.Sprint(n.Live().Wrote("ip6")), want, "%q", page)
		server.Close()
	}
}
