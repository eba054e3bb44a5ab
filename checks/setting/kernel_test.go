package setting_test

import (
	"bytes"
	"encoding/json"
	"os"
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

// TestRealKernel confirms the fake machine's behaviour on the real kernel.
func TestRealKernel(t *testing.T) {
	h := checkstest.Scratch(t)
	vxlan := &netlink.Vxlan{LinkAttrs: netlink.LinkAttrs{Name: "flannel.1", MTU: 1500}, VxlanId: 1, Port: 8472}
	checkstest.AddLink(t, vxlan)
	checkstest.AddLink(t, &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "cni0"}})
	checkstest.AddLink(t, &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "veth0.100"}, PeerName: "veth1"})

	p := checkstest.Load(t, `
		sysctl "net.ipv4.ip_forward" { value = 1 }
		sysctl "net.ipv4.tcp_rmem" { value = "4096 87380 5242880" }
		sysctl "net/ipv4/conf/veth0.100/rp_filter" { value = 2 }
		sysctl "net.ipv4.conf.*.send_redirects" { value = 0 }
		sysctl "net.ipv4.no_such_thing" { value = 1 }
		sysctl "net.ipv4.route.flush" { value = 1 }
		sysctl "net.netfilter.nf_conntrack_max" { value = 12345 }
		sysctl "net.bridge.bridge-nf-call-iptables" { value = 1 }
		link "vxlan" {
		  match {
		    kind = "vxlan"
		    name = "flannel*"
		  }
		  offload = { tx-checksum-ip-generic = false }
		  mtu     = 1450
		  sysctl  = { "net.ipv4.conf.*.rp_filter" = 0 }
		}
		link "driver" {
		  match { driver = "veth" }
		  offload = { tx = false, tso = true }
		}
		link "fixed" {
		  match { name = "cni0" }
		  offload = { tx-lockless = false, rx-all = true, gro = false }
		}
		link "default" {
		  match { default_route = true }
		  mtu = 1500
		}`)
	list := catalog.For(p, checks.Boot)
	results := func(r checks.Outcome) map[string]checks.Result {
		by := map[string]checks.Result{}
		for _, res := range r.Results {
			by[res.Name] = res
		}
		return by
	}

	first := results(checks.Apply(t.Context(), h, checks.Boot, list, nil))
	for name, want := range map[string]struct {
		verdict verdict.Verdict
		fixed   bool
		text    string // contained in Got or in the error
	}{
		"module.br_netfilter":                       {verdict.Pass, false, ""},
		"sysctl.net.ipv4.ip_forward":                {verdict.Pass, true, "1"},
		"sysctl.net.ipv4.tcp_rmem":                  {verdict.Pass, true, "4096 87380 5242880"},
		"sysctl.net.ipv4.conf.veth0/100.rp_filter":  {verdict.Pass, true, "2"},
		"sysctl.net.ipv4.conf.*.send_redirects":     {verdict.Pass, true, "0"},
		"sysctl.net.ipv4.no_such_thing":             {verdict.Fail, false, "no such parameter"},
		"sysctl.net.ipv4.route.flush":               {verdict.Unknown, false, "can be written but not read back"},
		"sysctl.net.netfilter.nf_conntrack_max":     {verdict.Fail, false, "read-only here"},
		"sysctl.net.bridge.bridge-nf-call-iptables": {verdict.Pass, false, "1"},
		"link.vxlan":   {verdict.Pass, true, "tx-checksum-ip-generic=off mtu=1450"},
		"link.driver":  {verdict.Pass, true, "tso=on tx=off"},
		"link.fixed":   {verdict.Fail, false, "cni0: rx-all=off [fixed], cni0: tx-lockless=unknown to this kernel"},
		"link.default": {verdict.Skipped, false, ""},
	} {
		r, ok := first[name]
		text := r.State.Got
		if r.Err != nil {
			text += " " + r.Err.Error()
		}
		if !ok || r.Verdict != want.verdict || r.Fixed != want.fixed || !strings.Contains(text, want.text) {
			t.Errorf("%s: %v, fixed %t, %q; want %+v", name, r.Verdict, r.Fixed, text, want)
		}
	}
	if strings.Contains(first["link.fixed"].State.Got, "rx-gro") {
		t.Errorf("a feature that can be set was not set next to one that cannot: %s", first["link.fixed"].State.Got)
	}
	for name, r := range results(checks.Apply(t.Context(), h, checks.Boot, list, nil)) {
		assert.True(t, !r.Fixed, "second apply fixed %s", name)
	}

	// Recreate the link, as flannel does: the new one does not meet the requirement.
	require.NoError(t, netlink.LinkDel(vxlan))
	if r := results(checks.Inspect(t.Context(), h, checks.Boot, list))["link.vxlan"]; r.Verdict != verdict.Skipped {
		t.Errorf("without the link: %v", r.Verdict)
	}
	checkstest.AddLink(t, vxlan)
	if r := results(checks.Inspect(t.Context(), h, checks.Boot, list))["link.vxlan"]; r.Verdict != verdict.Fail {
		t.Errorf("a recreated link: %v", r.Verdict)
	}
	if r := results(checks.Apply(t.Context(), h, checks.Boot, list, nil))["link.vxlan"]; !r.Fixed {
		t.Errorf("a recreated link is not fixed: %+v", r)
	}
}

// TestTunOnTheKernel: a tun link has the kind that `ip -d link` prints.
func TestTunOnTheKernel(t *testing.T) {
	_, err := os.Stat("/dev/net/tun")
	hosttest.Need(t, err == nil, "/dev/net/tun: modprobe tun")
	h := checkstest.Scratch(t)
	list := catalog.For(checkstest.Load(t, `
		link "tunnel" {
		  match { kind = "tun" }
		  mtu = 1280
		}`), checks.Boot)
	checkstest.AddLink(t, &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: "tailscale0", MTU: 1500}, Mode: netlink.TUNTAP_MODE_TUN})
	checkstest.Equal(t, "report", `
pass link.tunnel: tailscale0: mtu=1500 -> mtu=1280
pass`, checkstest.Print(checks.Apply(t.Context(), h, checks.Boot, list, nil)))
}

// TestGlobsBesideFiles: a pattern matches parameters only. With conntrack, net.*.conf.all.accept_redirects would otherwise
// also match below the file net/nf_conntrack_max, and the verdict would be unknown.
func TestGlobsBesideFiles(t *testing.T) {
	h, s := host.Record(checkstest.Scratch(t))
	p := checkstest.Load(t, `
		sysctl "net.ipv4.*.all.log_martians" { value = 1 }
		sysctl "net.ipv4.*.lo.no_such" { value = 1 }
		sysctl "net.ipv4.*.l*.log_martians" { value = 1 }
		sysctl "net.ipv4.con*" { value = 1 }
		sysctl "net.ipv4.ip_forward.all" { value = 1 }
		sysctl "net.ipv4.conf" { value = 1 }`)
	list := catalog.For(p, checks.Boot)
	checkstest.Equal(t, "report", `
pass sysctl.net.ipv4.*.all.log_martians: net.ipv4.conf.all.log_martians is 0 -> 1
skipped sysctl.net.ipv4.*.lo.no_such: no parameter matches net.ipv4.*.lo.no_such yet
pass sysctl.net.ipv4.*.l*.log_martians: net.ipv4.conf.lo.log_martians is 0 -> 1
skipped sysctl.net.ipv4.con*: no parameter matches net.ipv4.con* yet
fail sysctl.net.ipv4.ip_forward.all: want 1, got no such parameter
fail sysctl.net.ipv4.conf: want 1, got no such parameter
fail`, checkstest.Print(checks.Apply(t.Context(), h, checks.Boot, list, nil)))
	now := checkstest.Print(checks.Inspect(t.Context(), h, checks.Boot, list))
	checkstest.Equal(t, "recording", now, checkstest.Print(checks.Inspect(t.Context(), host.Replay(s), checks.Boot, list)))
}

// TestRangesOnTheKernel: the kernel sorts and merges ranges; the written value still passes.
func TestRangesOnTheKernel(t *testing.T) {
	h := checkstest.Scratch(t)
	for _, value := range []string{"6443,30000-30999,32000-32767,30000-32767", "3,1,2,9-9", "65535", "10-20,5-30"} {
		p := checkstest.Load(t, "sysctl \"net.ipv4.ip_local_reserved_ports\" { value = \""+value+"\" }")
		list := catalog.For(p, checks.Boot)
		if r := checks.Apply(t.Context(), h, checks.Boot, list, nil); r.Verdict() != verdict.Pass {
			t.Errorf("%s: %s", value, checkstest.Print(r))
		}
		if got, err := h.ReadSysctl("net/ipv4/ip_local_reserved_ports"); err != nil || got != p.Sysctls[0].Value {
			t.Errorf("%s is %q on the kernel, %v; %q in the policy", value, got, err, p.Sysctls[0].Value)
		}
	}
}

// TestRecordedKernel: a recording gives the same answers as the kernel.
func TestRecordedKernel(t *testing.T) {
	h := checkstest.Scratch(t)
	checkstest.AddLink(t, &netlink.Vxlan{LinkAttrs: netlink.LinkAttrs{Name: "flannel.1", MTU: 1500}, VxlanId: 1, Port: 8472})
	list := catalog.For(checkstest.Load(t, `
		use "kubernetes" {}
		sysctl "net.ipv4.conf.*.rp_filter" { one_of = [0, 1] }
		link "vxlan" {
		  match {
		    kind   = "vxlan"
		    driver = "vxlan"
		  }
		  offload = { tx-checksum-ip-generic = false }
		}
		link "uplink" {
		  match { default_route = true }
		  mtu = 1500
		}`), checks.Boot)
	recording, snapshot := host.Record(h)
	live := checkstest.Print(checks.Inspect(t.Context(), recording, checks.Boot, list))
	var file bytes.Buffer
	require.NoError(t, json.NewEncoder(&file).Encode(snapshot))
	read, err := host.ReadSnapshot(&file)
	require.NoError(t, err)
	replayed := host.Replay(read)
	checkstest.Equal(t, "replay", live, checkstest.Print(checks.Inspect(t.Context(), replayed, checks.Boot, list)))
	for _, r := range checks.Apply(t.Context(), replayed, checks.Boot, list, nil).Results {
		assert.True(t, !r.Fixed, "%s was fixed on a recording", r.Name)
	}
}

// TestLinkWithoutIPv6OnTheKernel: the kernel removes an interface's IPv6 parameters below an MTU of 1280, and restores them.
func TestLinkWithoutIPv6OnTheKernel(t *testing.T) {
	h := checkstest.Scratch(t)
	_, err := h.ReadSysctl("net/ipv6/conf/lo/disable_ipv6")
	hosttest.Need(t, err == nil, "a kernel with IPv6")
	checkstest.AddLink(t, &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "cni0", MTU: 1200}})
	p := checkstest.Load(t, "link \"v6\" {\n  match { name = \"cni*\" }\n  sysctl = { \"net.ipv6.conf.*.accept_ra\" = 0 }\n}\n")
	list := catalog.For(p, checks.Boot)
	checkstest.Equal(t, "1200 bytes", "skipped link.v6: no matching link has IPv6, and no other setting is required\npass",
		checkstest.Print(checks.Inspect(t.Context(), h, checks.Boot, list)))
	require.NoError(t, h.Links.Set(t.Context(), "cni0", "mtu", map[string]string{"": "1280"}))
	checkstest.Equal(t, "1280 bytes", "fail link.v6: want net.ipv6.conf.*.accept_ra=0, got cni0: net.ipv6.conf.cni0.accept_ra=1\nfail",
		checkstest.Print(checks.Inspect(t.Context(), h, checks.Boot, list)))
}
