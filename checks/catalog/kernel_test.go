package catalog_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/checks/checkstest"
	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
	"nodegate/internal/verdict"
)

// TestRemediesInARealKernel breaks a network namespace, follows the printed remedy, and checks again.
func TestRemediesInARealKernel(t *testing.T) {
	h := checkstest.Scratch(t)
	checkstest.AddLink(t, &netlink.Vxlan{LinkAttrs: netlink.LinkAttrs{Name: "flannel.1", MTU: 1450}, VxlanId: 1, Port: 8472})
	checkstest.AddLink(t, &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "lxc0a"}, PeerName: "eth0"})
	write := func(key, value string) {
		t.Helper()
		if err := h.WriteSysctl(key, value); err != nil {
			t.Fatal("this kernel rejects the broken value: ", err)
		}
	}
	for _, c := range []struct {
		problem string
		broken  [][2]string
		got     string
	}{
		{"rp-filter.effective", [][2]string{{"net/ipv4/conf/all/rp_filter", "1"}, {"net/ipv4/conf/flannel.1/rp_filter", "1"},
			{"net/ipv4/conf/lxc0a/rp_filter", "0"}}, "flannel.1=1 lxc0a=1"},
		{"rp-filter.effective", [][2]string{{"net/ipv4/conf/all/rp_filter", "2"}, {"net/ipv4/conf/flannel.1/rp_filter", "1"},
			{"net/ipv4/conf/lxc0a/rp_filter", "0"}}, "lxc0a=2"},
		{"nodeport.overlap", [][2]string{{"net/ipv4/ip_local_port_range", "20000 60999"},
			{"net/ipv4/ip_local_reserved_ports", "6443,30000-30100"}}, "local ports 20000-60999, port 30101 not reserved"},
	} {
		// t.Run would run on another thread, in another namespace.
		for _, b := range c.broken {
			write(b[0], b[1])
		}
		list := catalog.For(checkstest.Load(t, "check \""+c.problem+"\" {}"), checks.Run)
		r := checks.Inspect(t.Context(), h, checks.Run, list).Results[0]
		if r.Verdict != verdict.Warn || r.State.Got != c.got {
			t.Errorf("%s, broken: %s", c.problem, checkstest.Text(r))
			continue
		}
		checkstest.Obey(t, h, new(hosttest.Machine), r.State.Remedy)
		if r := checks.Inspect(t.Context(), h, checks.Run, list).Results[0]; r.Verdict != verdict.Pass {
			t.Errorf("%s, after the remedy: %s", c.problem, checkstest.Text(r))
		}
	}
}

// TestRulesOnTheKernel writes kube-proxy's rules into a namespace and checks them as the machine's own iptables prints them.
func TestRulesOnTheKernel(t *testing.T) {
	h := checkstest.ScratchSys(t)
	const restore = "iptables-nft-restore"
	hosttest.NeedProgram(t, restore)
	load := func(save string) {
		t.Helper()
		cmd := exec.Command(restore)
		cmd.Stdin = strings.NewReader(strings.ReplaceAll(save, "-m nfacct --nfacct-name  ct_state_invalid_dropped_pkts ", ""))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", restore, err, out)
		}
	}
	checkstest.Is(t, h, "no rules", "kubeproxy.postrouting", "skipped: no kube-proxy rules found")
	checkstest.PodNetwork(t)

	load(checkstest.ProxySave)
	checkstest.Is(t, h, "healthy", "kubeproxy.postrouting", "pass: masqueraded once, from random ports")
	checkstest.Is(t, h, "healthy", "conntrack.invalid", "pass: INVALID dropped")
	checkstest.Is(t, h, "healthy", "conntrack.be-liberal-changed", "pass: be_liberal unchanged since kube-proxy started")
	checkstest.Is(t, h, "healthy", "iptables.backends", "pass: one backend")
	checkstest.Is(t, h, "healthy", "iptables.bare-drop", "pass: no DROP without a match")
	checkstest.Is(t, h, "this kernel", "vxlan.checksum", "pass: not all four conditions met: the kernel has the fix")

	load(checkstest.Changed(t, checkstest.DropInvalid, "", checkstest.ReturnClear, "", checkstest.Masquerade, checkstest.OldForm,
		"-A KUBE-FORWARD -m comment --comment \"kubernetes forwarding rules\"",
		"-A KUBE-FIREWALL -j DROP\n-A KUBE-FORWARD -m comment --comment \"kubernetes forwarding rules\""))
	checkstest.Is(t, h, "old form", "kubeproxy.postrouting", "warn: double-snat")
	checkstest.Is(t, h, "DROP left out", "conntrack.be-liberal-changed", "fail: be_liberal=0 now, not 0 when kube-proxy started")
	checkstest.Is(t, h, "DROP left out", "conntrack.invalid", "fail: be_liberal=0, no DROP of INVALID")
	checkstest.Is(t, h, "bare", "iptables.bare-drop", "fail: bare DROP in iptables-nft")
	checkstest.SetSysctl(t, h, "net/netfilter/nf_conntrack_tcp_be_liberal", "1")
	checkstest.Is(t, h, "be_liberal", "conntrack.invalid", "pass: be_liberal=1")

	old := *h
	old.Kernel = checkstest.Release{Kernel: h.Kernel, Released: "5.4.38"}
	if id, _ := h.Fact(t.Context(), "os.id"); id == "debian" {
		r := checkstest.On(t.Context(), t, &old, checks.Run, "vxlan.checksum", "")
		if r.Verdict != verdict.Unknown || !strings.Contains(r.Err.Error(), "three of four conditions are met on flannel.1") {
			t.Errorf("an old kernel of Debian: %v, %v, %q", r.Verdict, r.Err, r.State.Evidence)
		}
	}
	require.NoError(t, h.Links.Set(t.Context(), "flannel.1", "offload", map[string]string{"tx-checksum-ip-generic": "off"}))
	checkstest.Is(t, &old, "offload off", "vxlan.checksum",
		"pass: not all four conditions met: no tunnel without an outer checksum offloads the inner one")
	require.NoError(t, h.Links.Set(t.Context(), "flannel.1", "offload", map[string]string{"tx-checksum-ip-generic": "on"}))
	old.Files = &checkstest.SecondRead{Files: h.Files, Name: "/etc/os-release", Then: "ID=flatcar\n", Read: true}
	checkstest.Is(t, &old, "an old kernel of Flatcar", "vxlan.checksum", "fail: all four conditions met on flannel.1")
}

// TestCountersOnTheKernel: the kernel's real tables can be parsed.
func TestCountersOnTheKernel(t *testing.T) {
	h, err := host.Open("/")
	require.NoError(t, err)
	for _, name := range []string{"conntrack.losses", "udp.checksum-errors", "conntrack.headroom", "conntrack.full", "conntrack.hashsize"} {
		r := checkstest.On(t.Context(), t, h, checks.Run, name, "")
		assert.True(t, r.Verdict != verdict.Unknown, "%s: %v", name, r.Err)
		t.Logf("%s: %s %s%s", name, r.Verdict, r.State.Got, r.State.Skip)
	}
}
