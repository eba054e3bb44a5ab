package catalog_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/checks/checkstest"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// TestProblemsReplay: a replayed snapshot gives the same results as the node.
func TestProblemsReplay(t *testing.T) {
	m := checkstest.Node(map[string]string{
		"/proc/swaps": "Filename\n/dev/sda2 partition 1 0 -2\n", "/proc/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
		"/etc/sysctl.d/10-a.conf": "net.ipv4.ip_forward = 0\n", "/etc/sysctl.conf": "", "/var/lib/kubelet/config.yaml": "{}\n",
		"/usr/lib/systemd/network/99-default.link": checkstest.DefaultLink, "/usr/lib/systemd/libsystemd-shared-252.so": "",
		"/proc/net/stat/arp_cache": checkstest.NeighbourHeader + "0010 0 0 0 0 0 0 0 0 0 0 0 0\n",
	}, map[string]string{
		"net/ipv4/ip_forward": "1", "net/ipv4/conf/all/rp_filter": "1", "net/ipv4/conf/flannel.1/rp_filter": "0",
		"net/ipv4/neigh/default/gc_thresh3": "1024",
		"net/ipv4/ip_local_port_range":      "1024 65535", "net/ipv4/ip_local_reserved_ports": "",
		"fs/inotify/max_user_watches": "1", "fs/inotify/max_user_instances": "1",
	})
	m.Links = map[string]*hosttest.Link{"flannel.1": {Kind: "vxlan"}}
	m.Rules = map[string]string{"iptables-nft-save": "*filter\nCOMMIT\n"}
	m.Units = map[string][2]string{"firewalld.service": {"active", "enabled"}, "systemd-networkd.service": {"active", "enabled"}}
	text := checkstest.ForwardPolicy
	for _, name := range []string{
		"sysctl.who-wins", "link.mac-address-policy", "networkd.foreign-routes", "networkmanager.cni-links", "nm-cloud-setup", "firewalld",
		"ip-forward.writers",
		"rp-filter.effective", "kubelet.protect-kernel-defaults", "swap", "nodeport.overlap", "inotify.limits", "ipvs.settings",
		"neighbour.table",
	} {
		text += "check \"" + name + "\" {}\n"
	}
	list := catalog.For(checkstest.Load(t, text), checks.Run)
	recorded, snapshot := host.Record(m.Host())
	live := checkstest.Print(checks.Inspect(t.Context(), recorded, checks.Run, list))
	checkstest.Equal(t, "live", `
pass sysctl.net.ipv4.ip_forward
warn sysctl.who-wins: want the policy's values win, got net.ipv4.ip_forward=0 at boot and at sysctl --system
warn ip-forward.writers: want 1, and no file sets it to 0, got set to 0 by /etc/sysctl.d/10-a.conf:1
warn networkd.foreign-routes: want ManageForeignRoutes=no ManageForeignRoutingPolicyRules=no, got ManageForeignRoutes=yes ManageForeignRoutingPolicyRules=yes
skipped networkmanager.cni-links: NetworkManager is off
pass nm-cloud-setup
warn firewalld: want off, got firewalld.service is active, enabled
skipped kubelet.protect-kernel-defaults: kubelet's protectKernelDefaults is off: it writes the six parameters itself
fail swap: want no swap, or failSwapOn false, got swap on /dev/sda2
warn inotify.limits: want max_user_watches>=524288 max_user_instances>=512, got max_user_watches=1 max_user_instances=1
warn rp-filter.effective: want 0 on lxc* and cilium_*, not 1 on tunnels and ENIs, got flannel.1=1
warn link.mac-address-policy: want no persistent MAC address on CNI links, got persistent for flannel.1 vxlan.calico veth* cali* eni*
pass neighbour.table
warn nodeport.overlap: want 30000-32767 not used for outgoing connections, got local ports 1024-65535, port 30000 not reserved
skipped ipvs.settings: ip_vs is not in the kernel
fail`, live)
	checkstest.Equal(t, "replay", live, checkstest.Print(checks.Inspect(t.Context(), host.Replay(snapshot), checks.Run, list)))
	if m.Log != nil {
		t.Errorf("problems changed the node: %q", m.Log)
	}
}

// TestTrafficReplay: a replayed snapshot gives the same results as the node, for the checks on traffic.
func TestTrafficReplay(t *testing.T) {
	m := checkstest.ProxyNode(checkstest.Changed(t, checkstest.ReturnClear, "", checkstest.Masquerade, checkstest.OldForm,
		checkstest.DropInvalid, ""), "0")
	m.Kernel = "5.4.38"
	m.Files["/etc/os-release"] = "ID=flatcar\n"
	m.Files["/proc/net/stat/nf_conntrack"] = "entries insert_failed drop early_drop\n00000001 0000000a 00000000 00000000\n"
	m.Files["/proc/net/snmp"] = "Udp: InDatagrams InCsumErrors\nUdp: 9 3\n"
	m.Routes = []string{"eth0"}
	m.Links = map[string]*hosttest.Link{
		"eth0": {MTU: 1500, Driver: "ena", Stats: map[string]uint64{"pps_allowance_exceeded": 3}},
		"cni0": {Kind: "bridge", MTU: 1500}, "veth0": {Kind: "veth", MTU: 1500, Master: "cni0"},
		"flannel.1": {Kind: "vxlan", MTU: 1500, VXLAN: &host.VXLAN{Parent: "eth0"},
			Features: map[string]host.Feature{"tx-checksum-ip-generic": {Available: true, Requested: true, Active: true}}},
	}
	m.Sysctl("net/netfilter/nf_conntrack_count", "99")
	m.Sysctl("net/netfilter/nf_conntrack_max", "100")
	m.Sysctl("net/netfilter/nf_conntrack_buckets", "10")
	var blocks strings.Builder
	for _, name := range []string{
		"bridge.netfilter", "mtu.chain", "ena.allowance", "conntrack.be-liberal-changed", "conntrack.invalid",
		"conntrack.full", "conntrack.headroom", "conntrack.hashsize", "conntrack.kube-proxy-overwrites", "conntrack.losses", "vxlan.checksum",
		"udp.checksum-errors", "iptables.backends", "iptables.bare-drop",
		"kubeproxy.postrouting",
	} {
		fmt.Fprintf(&blocks, "check %q {}\n", name)
	}
	list := catalog.For(checkstest.Load(t, blocks.String()), checks.Run)
	recording, snapshot := host.Record(m.Host())
	live := checkstest.Print(checks.Inspect(t.Context(), recording, checks.Run, list))
	checkstest.Equal(t, "live", `
fail bridge.netfilter: want every Pod bridge passes packets to iptables, got br_netfilter not loaded
warn mtu.chain: want tunnel <= NIC - 50, Pods <= tunnel, got flannel.1 1500 > 1450
warn ena.allowance: want 0, got eth0 pps_allowance_exceeded=3
fail vxlan.checksum: want not all four conditions met, got all four conditions met on flannel.1
pass udp.checksum-errors
fail conntrack.be-liberal-changed: want be_liberal unchanged since kube-proxy started, got be_liberal=0 now, not 0 when kube-proxy started
fail conntrack.invalid: want be_liberal=1, or INVALID dropped, got be_liberal=0, no DROP of INVALID (because conntrack.be-liberal-changed)
fail conntrack.full: want at most 95 % of the table, got 99 % of the table
warn conntrack.headroom: want at most 80 % of the table, got 99 % of the table (because conntrack.full)
warn conntrack.hashsize: want at least a quarter of nf_conntrack_max, got 10 buckets for 100 entries
skipped conntrack.kube-proxy-overwrites: the policy leaves nf_conntrack_max to kube-proxy
pass conntrack.losses
pass iptables.backends
pass iptables.bare-drop
warn kubeproxy.postrouting: want masqueraded once, from random ports, got double-snat
fail`, live)
	var file bytes.Buffer
	require.NoError(t, json.NewEncoder(&file).Encode(snapshot))
	read, err := host.ReadSnapshot(&file)
	require.NoError(t, err)
	checkstest.Equal(t, "replay", live, checkstest.Print(checks.Inspect(t.Context(), host.Replay(read), checks.Run, list)))
}
