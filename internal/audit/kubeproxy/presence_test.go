package kubeproxy_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/audit/kubeproxy"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

const initialPIDs = "pid:[4026531836]"

// TestPresence distinguishes a kube-proxy that is absent, does not run or does not respond from one
// that responds at another address, and from one that is hidden from this process.
func TestPresence(t *testing.T) {
	healthy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			fmt.Fprintln(w, `kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv4"} 50`)
			return
		}
		fmt.Fprint(w, `{"lastUpdated":"2026-11-20T23:00:00Z","currentTime":"2026-11-20T23:00:00Z","healthy":true,"status":{}}`)
	}))
	t.Cleanup(healthy.Close)
	hanging, err := net.Listen("tcp4", "127.0.0.1:0") // the kernel accepts connections, but no program responds
	require.NoError(t, err)
	t.Cleanup(func() { _ = hanging.Close() })
	refused, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	_ = refused.Close()
	page := func(l net.Addr) string { return "http://" + l.String() + "/healthz" }
	process := func(name string, state byte, ns string) *hosttest.Machine {
		return &hosttest.Machine{
			Files: map[string]string{
				"/proc/7/stat": fmt.Sprintf("7 (a ) name) %c 1 7", state), "/proc/7/cmdline": name + "\x00--v=2\x00",
				"/proc/self/ns/pid": "-> " + ns, "/proc/self/ns/net": "-> net:[1]", "/proc/7/ns/net": "-> net:[1]",
				"/proc/7/fd/3": "-> socket:[77]",
				"/proc/7/net/tcp": "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n" +
					fmt.Sprintf("   0: 0100007F:%04X 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 77 1\n",
						healthy.Listener.Addr().(*net.TCPAddr).Port),
			},
		}
	}
	vcluster := process("k3s", 'S', initialPIDs)
	vcluster.Files["/proc/7/status"] = "Name:\tk3s\nUid:\t1000\t1000\t1000\t1000\n"
	blind := process("kube-proxy", 'S', initialPIDs)
	blind.Refuse = map[string]error{"l /proc/7/fd/3": fs.ErrPermission}
	foreign := process("/usr/local/bin/kube-proxy", 'S', initialPIDs)
	foreign.Files["/proc/7/ns/net"] = "-> net:[2]"
	deaf := process("kube-proxy", 'S', initialPIDs)
	deaf.Files["/proc/7/net/tcp"] = ""
	for _, c := range []struct {
		what    string
		m       *hosttest.Machine
		healthz net.Addr
		want    string
	}{
		{"answers", process("/usr/local/bin/kube-proxy", 'S', initialPIDs), healthy.Listener.Addr(), ""},
		{"answers, but is hidden", process("bash", 'S', "pid:[1]"), healthy.Listener.Addr(), ""},
		{"answers, briefly in state D", process("kube-proxy", 'D', initialPIDs), healthy.Listener.Addr(), ""},
		{"is absent, and another program answers", process("bash", 'S', initialPIDs), healthy.Listener.Addr(), ""},
		{"is absent", process("bash", 'S', initialPIDs), refused.Addr(), "kubeproxy.process.absent"},
		{"is another node's", foreign, refused.Addr(), "kubeproxy.process.absent"},
		{"is another user's k3s", vcluster, refused.Addr(), "kubeproxy.process.absent"},
		{"has sockets that cannot be read", blind, refused.Addr(), "kubeproxy.process.silent"},
		{"is hidden", process("bash", 'S', "pid:[1]"), refused.Addr(), "kubeproxy.process.silent"},
		{"is stopped", process("kube-proxy", 'T', initialPIDs), hanging.Addr(), "kubeproxy.process.stopped"},
		{"is stopped, and another program answers", process("kube-proxy", 'T', initialPIDs), healthy.Listener.Addr(), "kubeproxy.process.stopped"},
		{"is dead", process("kube-proxy", 'Z', initialPIDs), refused.Addr(), "kubeproxy.process.stopped"},
		{"is blocked in the kernel", process("kube-proxy", 'D', initialPIDs), hanging.Addr(), "kubeproxy.process.stopped"},
		{"hangs", process("k3s-server", 'S', initialPIDs), hanging.Addr(), "kubeproxy.process.hung"},
		{"listens on nothing", deaf, refused.Addr(), "kubeproxy.process.silent"},
	} {
		p := kubeproxy.Presence{Host: c.m.Host(), Healthz: page(c.healthz), Metrics: "http://" + c.healthz.String() + "/metrics"}
		found := p.Look(t.Context())
		if len(found) > 1 || c.want == "" && len(found) != 0 || c.want != "" && (len(found) == 0 || found[0].Name != c.want) {
			t.Errorf("kube-proxy %s: %+v, want %q", c.what, found, c.want)
		}
		if kubeproxy.Silent(found) != (c.want != "") {
			t.Errorf("kube-proxy %s: silent is wrong", c.what)
		}
		ctx := t.Context()
		if c.healthz == hanging.Addr() {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, time.Millisecond)
			defer cancel()
		}
		_, slow := p.Figures(ctx)
		assert.Equal(t, slow, c.what == "hangs" || c.what == "is blocked in the kernel", "kube-proxy %s: slow", c.what)
		assert.Equal(t, !p.LastSync(ctx).IsZero(), strings.HasPrefix(c.what, "answers"), "kube-proxy %s: it has written rules", c.what)
	}
	// kube-proxy does not respond at the expected address, and listens on another one.
	p := kubeproxy.Presence{Host: process("kube-proxy", 'S', initialPIDs).Host(), Healthz: page(refused.Addr())}
	if found := p.Look(t.Context()); len(found) != 0 || !strings.HasPrefix(p.Healthz, healthy.URL) {
		t.Errorf("kube-proxy elsewhere: %+v, healthz %q, want %s", found, p.Healthz, healthy.URL)
	}
}

// TestWriter: only a program that kube-proxy has started and that writes rules is a writer.
func TestWriter(t *testing.T) {
	for _, c := range []struct {
		parent, child string
		of, want      int
	}{
		{"/usr/local/bin/kube-proxy", "iptables-restore", 7, 8},
		{"kube-proxy", "/usr/sbin/ip6tables-restore", 7, 8},
		{"k3s-server", "nft", 7, 8},
		{"kube-proxy", "iptables-save", 7, 8}, // it reads before it writes
		{"kube-proxy", "ipset", 7, 0},
		{"kube-proxy", "iptables-restore", 1, 0},
		{"bash", "iptables-restore", 7, 0},
	} {
		m := &hosttest.Machine{Files: map[string]string{
			"/proc/self/ns/net": "-> net:[1]", "/proc/7/ns/net": "-> net:[1]", "/proc/8/ns/net": "-> net:[1]",
			"/proc/7/stat": "7 (a) S 1 7", "/proc/7/cmdline": c.parent + "\x00",
			"/proc/8/stat":    fmt.Sprintf("8 (b) R %d 8 7 0 -1 4194304 1 0 0 0 250 50 0 0 20 0 1 0 6000 0", c.of),
			"/proc/8/cmdline": c.child + "\x00-w\x00", "/proc/uptime": "64.50 1.00\n",
		}}
		p := kubeproxy.Presence{Host: m.Host()}
		got, runs, found := p.Writer()
		if got.PID != c.want || found != (c.want != 0) {
			t.Errorf("%s of process %d beside %s: writer %d, want %d", c.child, c.of, c.parent, got.PID, c.want)
		}
		if found && (runs != 4500*time.Millisecond || got.Used != 3*time.Second) {
			t.Errorf("the writer has run for %s and used %s, want 4.5 s and 3 s", runs, got.Used)
		}
	}
}

// TestConfigured reads kube-proxy's configuration file or its command line.
func TestConfigured(t *testing.T) {
	for _, c := range []struct {
		file, flag           string
		noExternal, nodePort bool
	}{
		{"", "--v=2", false, false},
		{"", "--feature-gates=A=true,AllowServiceExternalIPs=false", true, false},
		{"", "--feature-gates=AllowServiceExternalIPs=true", false, false},
		{"featureGates:\n  AllowServiceExternalIPs: false\n", "--v=2", true, false},
		{"featureGates: {\"AllowServiceExternalIPs\": true}\n", "--v=2", false, false},
		{"", "--nodeport-addresses=10.0.0.0/8", false, true},
		{"nodePortAddresses:\n- 10.0.0.0/8\n", "--v=2", false, true},
		{"", "--kube-proxy-arg=nodeport-addresses=10.0.0.0/8", false, true},
		{"", "--kube-proxy-arg=feature-gates=AllowServiceExternalIPs=false", true, false},
		{"nodePortAddresses: null\n", "--v=2", false, false},
		{"nodePortAddresses: []\n", "--nodeport-addresses=", false, false},
	} {
		m := &hosttest.Machine{Files: map[string]string{
			"/proc/7/stat": "7 (a) S 1 7", "/proc/7/cmdline": proxyProcess(c.flag) + "\x00" + c.flag + "\x00",
			"/proc/self/ns/net": "-> net:[1]", "/proc/7/ns/net": "-> net:[1]",
		}}
		if c.file != "" {
			m.Files["/var/lib/kube-proxy/config.conf"] = "kind: KubeProxyConfiguration\n" + c.file
		}
		p := kubeproxy.Presence{Host: m.Host()}
		got, _ := p.Settings()
		assert.Equal(t, got.NoExternalIPs, c.noExternal, "%q and %q: no external addresses", c.file, c.flag)
		assert.Equal(t, got.NodePortAddresses, c.nodePort, "%q and %q: addresses of node ports", c.file, c.flag)
	}
}

// proxy returns the program that takes a flag.
func proxyProcess(flag string) string {
	if strings.HasPrefix(flag, "--kube-proxy-arg") {
		return "k3s"
	}
	return "kube-proxy"
}

// TestExcludeCIDRs reads kube-proxy's configuration file or its command line.
func TestExcludeCIDRs(t *testing.T) {
	for flag, file := range map[string]string{
		"--ipvs-exclude-cidrs=192.0.2.0/24,2001:db8::/64":                "",
		"--kube-proxy-arg=ipvs-exclude-cidrs=192.0.2.0/24,2001:db8::/64": "",
		"--v=2": "ipvs:\n  excludeCIDRs: [192.0.2.0/24, \"2001:db8::/64\"]\n",
	} {
		m := &hosttest.Machine{Files: map[string]string{
			"/proc/7/stat": "7 (a) S 1 7", "/proc/7/cmdline": proxyProcess(flag) + "\x00" + flag + "\x00",
			"/proc/self/ns/net": "-> net:[1]", "/proc/7/ns/net": "-> net:[1]",
		}}
		if file != "" {
			m.Files["/var/lib/kube-proxy/config.conf"] = "kind: KubeProxyConfiguration\n" + file
		}
		p := kubeproxy.Presence{Host: m.Host()}
		got, _ := p.Settings()
		assert.Equal(t, fmt.Sprint(got.ExcludeCIDRs), "[192.0.2.0/24 2001:db8::/64]", "%q and %q", file, flag)
	}
}

// TestSettleTime: a kube-proxy that writes less often gets more time, wherever that is configured.
func TestSettleTime(t *testing.T) {
	const manifest, mine = "/etc/kubernetes/manifests/kube-proxy.manifest", "/proc/7/root/etc/mine.yaml"
	const k3s, unit = "/etc/rancher/k3s/config.yaml", "/etc/systemd/system/k3s.service"
	const thirty = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nnftables:\n  minSyncPeriod: 30s\n"
	for _, c := range []struct {
		what, args string
		files      map[string]string
		want       time.Duration
	}{
		{"the file of a service, which needs no right", "kube-proxy --config=/etc/mine.yaml", map[string]string{
			"/proc/7/cgroup": "0::/system.slice/kube-proxy.service\n", "/etc/mine.yaml": thirty}, 40 * time.Second},
		{"nothing", "kube-proxy --v=2", nil, 15 * time.Second},
		{"no kube-proxy", "bash", nil, 15 * time.Second},
		{"a manifest", "bash", map[string]string{manifest: "kube-proxy --iptables-min-sync-period=20s"}, 30 * time.Second},
		{"its flags", "kube-proxy --iptables-min-sync-period=20s", nil, 30 * time.Second},
		{"the file that its command line names", "kube-proxy --config=/etc/mine.yaml", map[string]string{mine: thirty}, 40 * time.Second},
		{"the same in two words", "kube-proxy --config /etc/mine.yaml", map[string]string{mine: thirty}, 40 * time.Second},
		{"an unreadable file", "kube-proxy --config=/etc/mine.yaml", nil, 15 * time.Second},
		{"the longer one", "kube-proxy --ipvs-min-sync-period=1s", map[string]string{
			manifest: "kube-proxy --ipvs-min-sync-period=20s"}, 30 * time.Second},
		{"with a fraction", "kube-proxy --iptables-min-sync-period=20.5s", nil, 30*time.Second + 500*time.Millisecond},
		{"beside an invalid value", "kube-proxy --conntrack-min=x --iptables-min-sync-period=20s --ipvs-min-sync-period=soon", nil,
			30 * time.Second},
		{"k3s", "k3s server --kube-proxy-arg=iptables-min-sync-period=60s", nil, 70 * time.Second},
		{"k3s, in two words", "k3s server --kube-proxy-arg --iptables-min-sync-period=60s", nil, 70 * time.Second},
		{"k3s' configuration", "k3s server", map[string]string{k3s: "kube-proxy-arg:\n- v=2\n- iptables-min-sync-period=60s\n"},
			70 * time.Second},
		{"one argument", "k3s server", map[string]string{k3s: "kube-proxy-arg: ipvs-min-sync-period=60s\n"}, 70 * time.Second},
		{"appended values", "k3s agent", map[string]string{k3s: "kube-proxy-arg: [v=2, iptables-min-sync-period=60s]\n",
			k3s + ".d/b.yml": "kube-proxy-arg+: [v=3]\n", k3s + ".d/c": "kube-proxy-arg: []\n"}, 70 * time.Second},
		{"replaced values", "k3s agent", map[string]string{k3s: "kube-proxy-arg: [iptables-min-sync-period=60s]\n",
			k3s + ".d/b.yaml": "kube-proxy-arg: [v=3]\n"}, 15 * time.Second},
		{"not YAML", "k3s server --kube-proxy-arg=iptables-min-sync-period=60s", map[string]string{k3s: "a: [\n"}, 70 * time.Second},
		{"k3s' unit, as its installer writes it", "/usr/local/bin/k3s server", map[string]string{
			unit: "[Service]\nExecStart=/usr/local/bin/k3s \\\n    server \\\n\t'--kube-proxy-arg' \\\n\t'iptables-min-sync-period=60s' \\\n\n",
		}, 70 * time.Second},
		{"a configuration that the unit names", "k3s server", map[string]string{
			"/etc/mine.yaml": "kube-proxy-arg: [iptables-min-sync-period=60s]\n",
			unit:             "[Service]\nExecStart=/usr/local/bin/k3s server -c /etc/mine.yaml\n"}, 70 * time.Second},
		{"kube-proxy's configuration by k3s", "k3s server", map[string]string{
			k3s: "kube-proxy-arg: config=/etc/kp.yaml\n", "/etc/kp.yaml": thirty}, 40 * time.Second},
		{"configuration left behind by k3s", "kube-proxy --v=2", map[string]string{k3s: "kube-proxy-arg: iptables-min-sync-period=60s\n"}, 15 * time.Second},
		{"shorter than usual", "kube-proxy --iptables-min-sync-period=2s", nil, 15 * time.Second},
	} {
		m := &hosttest.Machine{Files: map[string]string{
			"/proc/7/stat": "7 (a) S 1 7", "/proc/7/cmdline": strings.ReplaceAll(c.args, " ", "\x00") + "\x00",
			"/proc/self/ns/net": "-> net:[1]", "/proc/7/ns/net": "-> net:[1]"}}
		maps.Copy(m.Files, c.files)
		assert.Equal(t, kubeproxy.SettleTime(m.Host(), kubeproxy.UsualSettle), c.want, "%s", c.what)
	}
	m := &hosttest.Machine{Files: map[string]string{"/proc/7/stat": "7 (a) S 1 7", "/proc/7/cmdline": "kube-proxy\x00--config=/etc/mine.yaml\x00"},
		Refuse: map[string]error{"r " + mine: fs.ErrPermission}}
	p := kubeproxy.Presence{Host: m.Host()}
	_, err := p.Settings()
	assert.Equal(t, errors.Is(err, fs.ErrPermission), true, "a file that may not be read")
	m.Files["/var/lib/kube-proxy/config.conf"] = thirty
	_, err = p.Settings()
	assert.Equal(t, err, nil, "beside a copy")
}
