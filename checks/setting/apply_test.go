package setting_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/checks/checkstest"
	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/verdict"
)

func TestApplyThenApplyAgain(t *testing.T) {
	m := &hosttest.Machine{
		Files: map[string]string{},
		Modules: map[string]map[string]string{
			"br_netfilter": {"net/bridge/bridge-nf-call-iptables": "0"},
			"overlay":      {},
		},
		Links: map[string]*hosttest.Link{"flannel.1": {Kind: "vxlan", MTU: 1500, Features: map[string]host.Feature{
			"tx-checksum-ip-generic": {Available: true, Requested: true, Active: true},
			"tx-tcp-segmentation":    {Available: true, Requested: true, Active: true},
		}}, "eth0": {MTU: 1500}},
	}
	m.Sysctl("net/ipv4/ip_forward", "0")
	m.Sysctl("net/ipv4/tcp_rmem", "4096\t131072\t6291456")
	m.Sysctl("fs/inotify/max_user_instances", "128")
	m.Sysctl("net/ipv4/conf/flannel.1/rp_filter", "2")
	p := checkstest.Load(t, `
		module "overlay" {}
		sysctl "net.bridge.bridge-nf-call-iptables" { value = 1 }
		sysctl "net.ipv4.ip_forward" { value = 1 }
		sysctl "net.ipv4.tcp_rmem" { value = "4096 131072 6291456" }
		sysctl "fs.inotify.max_user_instances" { min = 512 }
		link "vxlan" {
		  match { kind = "vxlan" }
		  offload = { tx-checksum-ip-generic = false, tso = true }
		  mtu     = 1450
		  sysctl  = { "net.ipv4.conf.*.rp_filter" = 0 }
		}`)
	list := catalog.For(p, checks.Boot)

	before := m.String()
	checkstest.Equal(t, "inspection", `
fail module.overlay: want loaded, got not loaded
fail module.br_netfilter: want loaded, got not loaded
fail sysctl.net.bridge.bridge-nf-call-iptables: want 1, got no such parameter (because module.br_netfilter)
fail sysctl.net.ipv4.ip_forward: want 1, got 0
pass sysctl.net.ipv4.tcp_rmem
fail sysctl.fs.inotify.max_user_instances: want at least 512, got 128
fail link.vxlan: want tso=on tx-checksum-ip-generic=off mtu=1450 net.ipv4.conf.*.rp_filter=0, got flannel.1: tx-checksum-ip-generic=on, flannel.1: mtu=1500, flannel.1: net.ipv4.conf.flannel/1.rp_filter=2
fail`, checkstest.Print(checks.Inspect(t.Context(), checkstest.WithModuleIndex(m), checks.Boot, list)))
	after := m.String()
	assert.True(t, after == before, "Inspect changed the machine:\n%s", cmp.Diff(before, after))

	checkstest.Equal(t, "apply", `
pass module.overlay: not loaded -> loaded
pass module.br_netfilter: not loaded -> loaded
pass sysctl.net.bridge.bridge-nf-call-iptables: no such parameter -> 1
pass sysctl.net.ipv4.ip_forward: 0 -> 1
pass sysctl.net.ipv4.tcp_rmem
pass sysctl.fs.inotify.max_user_instances: 128 -> 512
pass link.vxlan: flannel.1: tx-checksum-ip-generic=on, flannel.1: mtu=1500, flannel.1: net.ipv4.conf.flannel/1.rp_filter=2 -> tso=on tx-checksum-ip-generic=off mtu=1450 net.ipv4.conf.*.rp_filter=0
pass`, checkstest.Print(checks.Apply(t.Context(), m.Host(), checks.Boot, list, nil)))
	checkstest.Equal(t, "changes", `
modprobe overlay
modprobe br_netfilter
write /proc/sys/net/bridge/bridge-nf-call-iptables 1
write /proc/sys/net/ipv4/ip_forward 1
ethtool -K flannel.1 tx-checksum-ip-generic false
write /proc/sys/fs/inotify/max_user_instances 512
ip link set flannel.1 mtu 1450
write /proc/sys/net/ipv4/conf/flannel.1/rp_filter 0`, sortedTail(m.Log))
	checkstest.Equal(t, "machine", `
fs/inotify/max_user_instances = 512
link eth0 mtu 1500
link flannel.1 mtu 1450
link flannel.1 tx-checksum-ip-generic: off
link flannel.1 tx-tcp-segmentation: off [requested on]
module br_netfilter
module overlay
net/bridge/bridge-nf-call-iptables = 1
net/ipv4/conf/flannel.1/rp_filter = 0
net/ipv4/ip_forward = 1
net/ipv4/tcp_rmem = 4096	131072	6291456`, m.String())

	m.Log = nil
	again := checks.Apply(t.Context(), m.Host(), checks.Boot, list, nil)
	for _, r := range again.Results {
		assert.True(t, !r.Fixed && r.Verdict == verdict.Pass, "second apply: %s is %s, fixed %t", r.Name, r.Verdict, r.Fixed)
	}
	assert.True(t, m.Log == nil, "second apply changed: %q", m.Log)
}

// sortedTail sorts the changes of the link, which have no fixed order.
func sortedTail(log []string) string {
	var ethtool, rest []string
	for i, l := range log {
		if i > 3 && !strings.HasPrefix(l, "ethtool") {
			rest = append(rest, l)
			continue
		}
		ethtool = append(ethtool, l)
	}
	return strings.Join(append(ethtool, rest...), "\n")
}
