package checks_test

import (
	"maps"
	"testing"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

const kubeadmConfig, eksConfig = "/var/lib/kubelet/config.yaml", "/etc/kubernetes/kubelet/config.json"

func TestSwap(t *testing.T) {
	const header = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
	const on = header + "/dev/sda2                               partition\t2097148\t\t0\t\t-2\n/swapfile file 1048572 0 -3\n"
	const unset = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	judgeSettings(t, "swap", checks.Run, []settingCase{
		{name: "on", node: node(map[string]string{"/proc/swaps": on, kubeadmConfig: unset}, nil), want: `fail
want: no swap, or failSwapOn false
got: swap on /dev/sda2, /swapfile
evidence: /proc/swaps: /dev/sda2 partition 2097148 0 -2
evidence: /proc/swaps: /swapfile file 1048572 0 -3
remedy: run: swapoff /dev/sda2 /swapfile; take it out of /etc/fstab, or set failSwapOn: false in kubelet's configuration`},
		{name: "off", node: node(map[string]string{"/proc/swaps": header}, nil), want: "pass\nwant: no swap\ngot: no swap"},
		{name: "tolerated, in JSON", node: node(map[string]string{"/proc/swaps": header + "/dev/zram0 partition 1 0 100\n", eksConfig: `{"kind":"KubeletConfiguration","failSwapOn":false}`}, nil), want: `pass
want: no swap, or failSwapOn false
got: swap, and failSwapOn false
evidence: /proc/swaps: /dev/zram0 partition 1 0 100
evidence: /etc/kubernetes/kubelet/config.json: failSwapOn: false`},
		{name: "tolerated by an argument, which overrides", node: node(map[string]string{
			"/proc/swaps": header + "/dev/zram0 partition 1 0 100\n", "/etc/default/kubelet": "#KUBELET_EXTRA_ARGS=--fail-swap-on=true\nKUBELET_EXTRA_ARGS=\"--v=2 --config /etc/k.yaml --fail-swap-on=false\"\n",
			"/etc/k.yaml": "failSwapOn: true\n",
		}, nil), want: `pass
want: no swap, or failSwapOn false
got: swap, and failSwapOn false
evidence: /proc/swaps: /dev/zram0 partition 1 0 100
evidence: /etc/default/kubelet: --fail-swap-on=false`},
		{name: "tolerated by a drop-in of the configuration, and of the unit", node: node(map[string]string{
			"/proc/swaps": header + "/dev/zram0 partition 1 0 100\n", kubeadmConfig: "failSwapOn: true\n",
			"/etc/systemd/system/kubelet.service.d/20-dir.conf": "[Service]\nEnvironment=\"KUBELET_EXTRA_ARGS=--config-dir=/etc/kubelet.d\"\n",
			"/etc/kubelet.d/10-swap.conf":                       "failSwapOn: false\n",
		}, nil), want: `pass
want: no swap, or failSwapOn false
got: swap, and failSwapOn false
evidence: /proc/swaps: /dev/zram0 partition 1 0 100
evidence: /etc/kubelet.d/10-swap.conf: failSwapOn: false`},
		{name: "no kubelet yet", node: node(map[string]string{"/proc/swaps": on}, nil),
			want: "unknown\nerror: swap is on (/dev/sda2, /swapfile) and no configuration of kubelet is here: cannot tell whether it tolerates swap"},
		{name: "k3s", node: node(map[string]string{"/proc/swaps": on}, nil), policy: `gate { unit = "k3s-agent.service" }`,
			want: "skip: k3s and RKE2 start kubelet with --fail-swap-on=false"},
		{name: "cannot be told", node: node(nil, nil), want: "unknown\nerror: looking for swap: open /proc/swaps: no such file or directory"},
	})
}

func TestCgroupVersion(t *testing.T) {
	const v1 = "tmpfs /sys/fs/cgroup tmpfs ro 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\ncgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n"
	judgeSettings(t, "cgroup.version", checks.Run, []settingCase{
		{name: "v1, hybrid", node: node(map[string]string{"/proc/mounts": v1}, nil), want: `warn
want: v2
got: v1
evidence: /proc/mounts: tmpfs at /sys/fs/cgroup
remedy: boot with systemd.unified_cgroup_hierarchy=1 (and without systemd.legacy_systemd_cgroup_controller), or set failCgroupV1: false`},
		{name: "v2", node: node(map[string]string{"/proc/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n"}, nil), want: "pass\nwant: v2\ngot: v2\nevidence: /proc/mounts: cgroup2 at /sys/fs/cgroup"},
		{name: "v1, tolerated", node: node(map[string]string{"/proc/mounts": v1, kubeadmConfig: "failCgroupV1: false\n"}, nil), want: `pass
want: v2, or failCgroupV1 false
got: v1, and failCgroupV1 false
evidence: /proc/mounts: tmpfs at /sys/fs/cgroup
evidence: /var/lib/kubelet/config.yaml: failCgroupV1: false`},
		{name: "nothing mounted", node: node(map[string]string{"/proc/mounts": "proc /proc proc rw 0 0\n"}, nil), want: "unknown\nerror: /proc/mounts has nothing at /sys/fs/cgroup"},
	})
}

func TestNodePortOverlap(t *testing.T) {
	ports := func(local, reserved string) *hosttest.Machine {
		return node(nil, map[string]string{"net/ipv4/ip_local_port_range": local, "net/ipv4/ip_local_reserved_ports": reserved})
	}
	judgeSettings(t, "nodeport.overlap", checks.Run, []settingCase{
		{name: "a wide range", node: ports("1024\t65535", "6443,30000-30999,32000-32767"), want: `warn
want: 30000-32767 not used for outgoing connections
got: local ports 1024-65535, port 31000 not reserved
evidence: /proc/sys/net/ipv4/ip_local_port_range: 1024 65535
evidence: /proc/sys/net/ipv4/ip_local_reserved_ports: 6443,30000-30999,32000-32767
remedy: run: sysctl -w 'net.ipv4.ip_local_reserved_ports=6443,30000-30999,32000-32767,30000-32767', and put it into the policy`},
		{name: "wide and reserved", node: ports("1024 65535", "30000-31999,32000-32767"), want: `pass
want: 30000-32767 not used for outgoing connections
got: 30000-32767 not used for outgoing connections
evidence: /proc/sys/net/ipv4/ip_local_port_range: 1024 65535
evidence: /proc/sys/net/ipv4/ip_local_reserved_ports: 30000-31999,32000-32767`},
		{name: "the kernel's default", node: ports("32768 60999", ""), want: `pass
want: 30000-32767 not used for outgoing connections
got: 30000-32767 not used for outgoing connections
evidence: /proc/sys/net/ipv4/ip_local_port_range: 32768 60999`},
		{name: "nonsense", node: ports("x", ""), want: "unknown\nerror: reading net.ipv4.ip_local_port_range \"x\": expected integer"},
	})
}

func TestInotifyLimits(t *testing.T) {
	low := map[string]string{"fs/inotify/max_user_watches": "524288", "fs/inotify/max_user_instances": "128"}
	judgeSettings(t, "inotify.limits", checks.Run, []settingCase{
		{name: "the default", node: node(nil, low), want: `warn
want: max_user_watches>=524288 max_user_instances>=512
got: max_user_watches=524288 max_user_instances=128
evidence: /proc/sys/fs/inotify/max_user_watches: 524288
evidence: /proc/sys/fs/inotify/max_user_instances: 128
remedy: run: sysctl -w fs.inotify.max_user_instances=8192; and put it into the policy`},
		{name: "the policy says so itself", node: node(nil, low), policy: "sysctl \"fs.inotify.max_user_instances\" { min = 512 }", want: `warn
want: max_user_watches>=524288 max_user_instances>=512
got: max_user_watches=524288 max_user_instances=128
because: sysctl.fs.inotify.max_user_instances
evidence: /proc/sys/fs/inotify/max_user_watches: 524288
evidence: /proc/sys/fs/inotify/max_user_instances: 128
remedy: run: sysctl -w fs.inotify.max_user_instances=8192; and put it into the policy`},
		{name: "kops", node: node(nil, map[string]string{"fs/inotify/max_user_watches": "1048576", "fs/inotify/max_user_instances": "8192"}), want: `pass
want: max_user_watches>=524288 max_user_instances>=512
got: max_user_watches=1048576 max_user_instances=8192
evidence: /proc/sys/fs/inotify/max_user_watches: 1048576
evidence: /proc/sys/fs/inotify/max_user_instances: 8192`},
	})
}

func TestIPVSSettings(t *testing.T) {
	good := map[string]string{
		"net/ipv4/vs/conntrack": "1", "net/ipv4/vs/expire_nodest_conn": "1", "net/ipv4/vs/expire_quiescent_template": "1",
		"net/ipv4/vs/conn_reuse_mode": "1", "net/ipv4/conf/all/arp_ignore": "1", "net/ipv4/conf/all/arp_announce": "2",
	}
	bad := maps.Clone(good)
	bad["net/ipv4/vs/conntrack"], bad["net/ipv4/conf/all/arp_ignore"] = "0", "0"
	old := node(nil, good)
	old.Kernel = "5.4.0-216-generic"
	judgeSettings(t, "ipvs.settings", checks.Run, []settingCase{
		{name: "two are off", node: node(nil, bad), want: `warn
want: net.ipv4.vs.conntrack=1 net.ipv4.vs.expire_nodest_conn=1 net.ipv4.vs.expire_quiescent_template=1 net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2
got: net.ipv4.vs.conntrack=0 net.ipv4.conf.all.arp_ignore=0
evidence: uname -r: 6.1.0
evidence: /proc/sys/net/ipv4/vs/conntrack: 0
remedy: run: sysctl -w net.ipv4.vs.conntrack=1 net.ipv4.conf.all.arp_ignore=1; and put them into the policy`},
		{name: "a kernel that reuses connections wrongly", node: old, want: `warn
want: net.ipv4.vs.conntrack=1 net.ipv4.vs.expire_nodest_conn=1 net.ipv4.vs.expire_quiescent_template=1 net.ipv4.vs.conn_reuse_mode=0 net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2
got: net.ipv4.vs.conn_reuse_mode=1
evidence: uname -r: 5.4.0-216-generic
evidence: /proc/sys/net/ipv4/vs/conn_reuse_mode: 1
remedy: run: sysctl -w net.ipv4.vs.conn_reuse_mode=0; and put them into the policy`},
		{name: "all set", node: node(nil, good), want: `pass
want: net.ipv4.vs.conntrack=1 net.ipv4.vs.expire_nodest_conn=1 net.ipv4.vs.expire_quiescent_template=1 net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2
got: net.ipv4.vs.conntrack=1 net.ipv4.vs.expire_nodest_conn=1 net.ipv4.vs.expire_quiescent_template=1 net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2
evidence: uname -r: 6.1.0`},
		{name: "no ip_vs", node: node(nil, nil), want: "skip: ip_vs is not in the kernel"},
	})
}

func TestProtectKernelDefaults(t *testing.T) {
	good := map[string]string{
		"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
		"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
	}
	bad := maps.Clone(good)
	bad["vm/overcommit_memory"], bad["kernel/panic"] = "0", "0"
	kops := map[string]string{"/etc/sysconfig/kubelet": "DAEMON_ARGS=\"--v=2 --protect-kernel-defaults=true\"\n"}
	judgeSettings(t, "kubelet.protect-kernel-defaults", checks.Run, []settingCase{
		{name: "kops, and two differ", node: node(kops, bad), want: `warn
want: the six values that kubelet demands
got: vm.overcommit_memory=0 kernel.panic=0
evidence: /etc/sysconfig/kubelet: --protect-kernel-defaults=true
evidence: /proc/sys/vm/overcommit_memory: 0
remedy: run: sysctl -w vm.overcommit_memory=1 kernel.panic=10; and put them into the policy`},
		{name: "the cause is the policy's own", node: node(kops, bad), policy: "sysctl \"kernel.panic\" { value = 10 }", want: `warn
want: the six values that kubelet demands
got: vm.overcommit_memory=0 kernel.panic=0
because: sysctl.kernel.panic
evidence: /etc/sysconfig/kubelet: --protect-kernel-defaults=true
evidence: /proc/sys/vm/overcommit_memory: 0
remedy: run: sysctl -w vm.overcommit_memory=1 kernel.panic=10; and put them into the policy`},
		{name: "kops, as it must be", node: node(kops, good), want: `pass
want: the six values that kubelet demands
got: the six values that kubelet demands
evidence: /etc/sysconfig/kubelet: --protect-kernel-defaults=true`},
		{name: "off", node: node(map[string]string{kubeadmConfig: "kind: KubeletConfiguration\n"}, bad), want: "skip: kubelet's protectKernelDefaults is off: it writes the six parameters itself"},
		{name: "not known", node: node(nil, bad), want: `warn
want: the six values that kubelet demands
got: vm.overcommit_memory=0 kernel.panic=0
evidence: /proc/sys/vm/overcommit_memory: 0
evidence: /proc/sys/kernel/panic: 0
remedy: run: sysctl -w vm.overcommit_memory=1 kernel.panic=10; and put them into the policy`},
		{name: "a configuration that is not YAML", node: node(map[string]string{kubeadmConfig: "a: [\n"}, good),
			want: "unknown\nerror: reading /var/lib/kubelet/config.yaml: yaml: line 1: did not find expected node content"},
	})
}

const neighbourHeader = "entries  allocs   destroys hash_grows lookups  hits     res_failed rcv_probes_mcast rcv_probes_ucast periodic_gc_runs forced_gc_runs unresolved_discards table_fulls\n"

func TestNeighbourTable(t *testing.T) {
	table := func(arp, ndisc string) *hosttest.Machine {
		files := map[string]string{}
		for name, rows := range map[string]string{"arp_cache": arp, "ndisc_cache": ndisc} {
			if rows != "" {
				files["/proc/net/stat/"+name] = neighbourHeader + rows
			}
		}
		return node(files, map[string]string{"net/ipv4/neigh/default/gc_thresh3": "1024", "net/ipv6/neigh/default/gc_thresh3": "1024"})
	}
	row := func(entries, full string) string {
		return entries + " 0000 0000 0000 0000 0000 0000 0000 0000 0000 0000 0000 " + full + "\n"
	}
	judgeSettings(t, "neighbour.table", checks.Run, []settingCase{
		{name: "nearly full", node: table(row("00000340", "00000000")+row("00000340", "00000000"), row("00000002", "00000000")), want: `warn
want: below 80% of gc_thresh3, never full
got: ipv4 832 of 1024; ipv6 2 of 1024
evidence: /proc/net/stat/arp_cache: entries 832, table_fulls 0
evidence: /proc/sys/net/ipv4/neigh/default/gc_thresh3: 1024
remedy: raise net.ipv4.neigh.default.gc_thresh3 to 4096 or more, and gc_thresh2 to 2048`},
		{name: "has been full", node: table(row("00000010", "00000001")+row("00000010", "0000000a"), ""), want: `warn
want: below 80% of gc_thresh3, never full
got: ipv4 16 of 1024, full 11 times since boot
evidence: /proc/net/stat/arp_cache: entries 16, table_fulls 11
evidence: /proc/sys/net/ipv4/neigh/default/gc_thresh3: 1024
remedy: raise net.ipv4.neigh.default.gc_thresh3 to 4096 or more, and gc_thresh2 to 2048`},
		{name: "room", node: table(row("00000010", "00000000"), row("00000002", "00000000")), want: `pass
want: below 80% of gc_thresh3, never full
got: ipv4 16 of 1024; ipv6 2 of 1024
evidence: /proc/net/stat/arp_cache: entries 16, table_fulls 0
evidence: /proc/sys/net/ipv4/neigh/default/gc_thresh3: 1024`},
		{name: "a short line", node: table("00000010 0000\n", ""), want: "unknown\nerror: reading /proc/net/stat/arp_cache: the line \"00000010 0000\" is too short"},
	})
}

func TestRPFilter(t *testing.T) {
	links := func(all string, own map[string]string, kinds map[string]string) *hosttest.Machine {
		m := node(nil, map[string]string{"net/ipv4/conf/all/rp_filter": all})
		m.Links = map[string]*hosttest.Link{}
		for name, value := range own {
			m.Sysctl("net/ipv4/conf/"+name+"/rp_filter", value)
			m.Links[name] = &hosttest.Link{Kind: kinds[name], Features: map[string]host.Feature{}}
		}
		return m
	}
	kinds := map[string]string{"flannel.1": "vxlan", "lxc12ab": "veth", "cni0": "bridge", "cali1": "veth"}
	eni := links("0", map[string]string{"ens5": "1", "eni0a": "2"}, kinds)
	eni.Files["/etc/cni/net.d/10-aws.conflist"], eni.Routes = "{}", []string{"ens5"}
	judgeSettings(t, "rp-filter.effective", checks.Run, []settingCase{
		{name: "all=2 reaches Cilium's interfaces", node: links("2", map[string]string{"lxc12ab": "0", "eth0": "0"}, kinds), want: `warn
want: 0 on lxc* and cilium_*, not 1 on tunnels, CNI bridges and ENIs
got: lxc12ab=2
evidence: /proc/sys/net/ipv4/conf/all/rp_filter: 2
evidence: /proc/sys/net/ipv4/conf/lxc12ab/rp_filter: 0, effective 2, needs 0
remedy: run: sysctl -w net.ipv4.conf.all.rp_filter=0; and put a link block with that sysctl into the policy`},
		{name: "strict on a tunnel whose name has a dot", node: links("0", map[string]string{"flannel.1": "1", "cni0": "2", "cali1": "1"}, kinds), want: `warn
want: 0 on lxc* and cilium_*, not 1 on tunnels, CNI bridges and ENIs
got: flannel.1=1
evidence: /proc/sys/net/ipv4/conf/all/rp_filter: 0
evidence: /proc/sys/net/ipv4/conf/flannel.1/rp_filter: 1, effective 1, needs not 1
remedy: run: sysctl -w net.ipv4.conf.flannel/1.rp_filter=2; and put a link block with that sysctl into the policy`},
		{name: "a strict ENI", node: eni, want: `warn
want: 0 on lxc* and cilium_*, not 1 on tunnels, CNI bridges and ENIs
got: ens5=1
evidence: /proc/sys/net/ipv4/conf/all/rp_filter: 0
evidence: /proc/sys/net/ipv4/conf/ens5/rp_filter: 1, effective 1, needs not 1
remedy: run: sysctl -w net.ipv4.conf.ens5.rp_filter=2; and put a link block with that sysctl into the policy`},
		{name: "loose on a tunnel, off on Cilium's", node: links("0", map[string]string{"flannel.1": "2", "lxc12ab": "0"}, kinds), want: `pass
want: 0 on lxc* and cilium_*, not 1 on tunnels, CNI bridges and ENIs
got: 0 on lxc* and cilium_*, not 1 on tunnels, CNI bridges and ENIs
evidence: /proc/sys/net/ipv4/conf/all/rp_filter: 0`},
		{name: "no CNI", node: links("1", map[string]string{"eth0": "1"}, kinds), want: "skip: no interface of a CNI yet"},
	})
}

func TestRouteLocalnetMartian(t *testing.T) {
	const drop = "-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment \"block incoming localnet connections\" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP\n"
	rules := func(on, text string) *hosttest.Machine {
		m := node(nil, map[string]string{"net/ipv4/conf/all/route_localnet": on})
		m.Rules = map[string]string{"iptables-nft-save": "*filter\n" + text + "COMMIT\n", "ip6tables-nft-save": "*filter\nCOMMIT\n"}
		return m
	}
	judgeSettings(t, "route-localnet.martian", checks.Run, []settingCase{
		{name: "open", node: rules("1", "-A INPUT -j KUBE-FIREWALL\n"), want: `warn
want: martian packets dropped
got: route_localnet=1 without the KUBE-FIREWALL rule
evidence: /proc/sys/net/ipv4/conf/all/route_localnet: 1
evidence: iptables-nft-save: -A INPUT -j KUBE-FIREWALL
remedy: let kubelet make its rules (makeIPTablesUtilChains: true), or run kube-proxy with --iptables-localhost-nodeports=false and set route_localnet=0`},
		{name: "the jump is gone", node: rules("1", drop), want: `warn
want: martian packets dropped
got: the rule is in KUBE-FIREWALL, and INPUT does not jump there
evidence: /proc/sys/net/ipv4/conf/all/route_localnet: 1
evidence: iptables-nft-save: ` + drop + `remedy: restart kubelet: it puts the jump from INPUT to KUBE-FIREWALL back`},
		{name: "closed", node: rules("1", "-A INPUT -j KUBE-FIREWALL\n"+drop), want: `pass
want: martian packets dropped
got: martian packets dropped
evidence: /proc/sys/net/ipv4/conf/all/route_localnet: 1
evidence: iptables-nft-save: -A INPUT -j KUBE-FIREWALL`},
		{name: "off", node: rules("0", ""), want: "skip: route_localnet is 0"},
	})
}
