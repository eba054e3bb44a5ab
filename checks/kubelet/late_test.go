package kubelet_test

import (
	"net/netip"
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

// TestKubeletCauses of internal/e2e/cluster judges the same faults with a real kubelet.

// late returns a node with kubelet 1.37, flags, and lines of its configuration.
func late(flags, config string, files map[string]string) *hosttest.Machine {
	m := withUnit("--config="+kubeadmConfig+" "+flags, with(files, kubeadmConfig, header+config))
	m.Version = map[string]string{"/usr/bin/kubelet": "Kubernetes v1.37.2"}
	return m
}

const (
	inConfig   = "\nevidence: /var/lib/kubelet/config.yaml: "
	inUnitFile = "\nevidence: /usr/lib/systemd/system/kubelet.service: "
)

func TestCgroups(t *testing.T) {
	node := func(controllers, config string, files map[string]string) *hosttest.Machine {
		return late("", config, with(with(files, "/proc/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"),
			"/sys/fs/cgroup/cgroup.controllers", controllers))
	}
	const all, ok = "cpuset cpu io memory hugetlb pids\n", "the cgroups and controllers that kubelet needs"
	const right = "\npass\nwant: " + ok + "\ngot: " + ok
	wrong := func(got, seen string) string {
		return "\nfail\nwant: " + ok + "\ngot: " + got + seen +
			"\nremedy: create the cgroup before kubelet starts, or remove its name from enforceNodeAllocatable"
	}
	const enforce = "enforceNodeAllocatable: [pods, kube-reserved]\nkubeReserved: {cpu: 10m}\nkubeReservedCgroup: /kube.slice\n"
	const v1 = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw,cpu,cpuacct 0 0\ncgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n"
	running := node(all, enforce, nil)
	running.Files["/etc/systemd/system/kubelet.service.d/slice.conf"] = "[Service]\nSlice=kube.slice\n"
	made := node(all, enforce, nil)
	made.Files["/etc/systemd/system/kubelet.service.d/mkdir.conf"] = "[Service]\nExecStartPre=/bin/mkdir -p /sys/fs/cgroup/kube.slice\n"
	told := node(all, "cgroupDriver: cgroupfs\n"+enforce+"kubeReservedCgroup: /podruntime/kube-reserved.slice\n",
		map[string]string{"/sys/fs/cgroup/kube.slice/kube-reserved.slice": ""})
	told.Cgroups = map[string]host.CgroupDriver{"/run/containerd/containerd.sock": {Driver: "systemd", Told: true}}
	checkstest.RunOne(t, "kubelet.cgroups", checks.Boot, []checkstest.Case{
		{What: "kubeadm", Node: node(all, "cgroupDriver: systemd\n", nil), Want: right},
		{What: "a slice that does not exist", Node: node(all, "cgroupDriver: systemd\n"+enforce, nil),
			Want: wrong("kubeReservedCgroup is /kube.slice, but /sys/fs/cgroup/kube.slice does not exist",
				inConfig+"kubeReservedCgroup: /kube.slice"+inConfig+"enforceNodeAllocatable: pods,kube-reserved")},
		{What: "a slice", Node: node(all, enforce, map[string]string{"/sys/fs/cgroup/kube.slice": ""}), Want: right},
		{What: "the slice of kubelet's unit", Node: running, Want: right},
		{What: "a slice that the unit creates", Node: made, Want: right + "\nevidence: /etc/systemd/system/kubelet.service.d/mkdir.conf:2: " +
			"creates /sys/fs/cgroup/kube.slice before kubelet starts"},
		{What: "the runtime's driver nests slices", Node: told, Want: right},
		{What: "a reservation that is not enforced", Node: node(all, "kubeReservedCgroup: /kube.slice\n", nil), Want: right},
		{What: "no root", Node: node(all, "cgroupRoot: /nosuchroot\n", nil),
			Want: wrong("cgroupRoot is /nosuchroot, but /sys/fs/cgroup/nosuchroot does not exist", inConfig+"cgroupRoot: /nosuchroot")},
		{What: "no root, and not used", Node: node(all, "cgroupRoot: /nosuchroot\ncgroupsPerQOS: false\nenforceNodeAllocatable: []\n", nil), Want: right},
		{What: "v2 without controllers", Node: node("\n", "", nil), Want: `
warn
want: the cgroups and controllers that kubelet needs
got: cgroup v2 without cpu, memory
evidence: /sys/fs/cgroup/cgroup.controllers: empty
remedy: remove cgroup_disable= and cgroup_no_v1= from the kernel command line; if cgroup v1 has mounted the controller elsewhere, boot with systemd.unified_cgroup_hierarchy=1`},
		{What: "a reservation that cannot be enforced", Node: node("cpu io\n", enforce+"kubeReserved: {cpu: 10m, memory: 1Gi}\n",
			map[string]string{"/sys/fs/cgroup/kube.slice": ""}),
			Want: wrong("kubeReserved cannot be enforced without the controller cpuset; kubeReserved cannot be enforced without the controller "+
				"memory; cgroup v2 without memory", "\nevidence: /sys/fs/cgroup/cgroup.controllers: cpu io"+inConfig+
				"kubeReservedCgroup: /kube.slice"+inConfig+"enforceNodeAllocatable: pods,kube-reserved")},
		{What: "a root without a controller", Node: node(all, "cgroupRoot: /pods\n", map[string]string{"/sys/fs/cgroup/pods": "",
			"/sys/fs/cgroup/pods/cgroup.controllers": "cpu memory pids\n"}),
			Want: wrong("cgroupRoot /pods lacks the controllers cpuset, hugetlb", inConfig+"cgroupRoot: /pods")},
		{What: "v1 without memory", Node: late("", "failCgroupV1: false\n", map[string]string{"/proc/mounts": v1}), Want: `
fail
want: the cgroups and controllers that kubelet needs
got: cgroup v1 without memory
evidence: /proc/mounts: no cgroup v1 mount with memory
remedy: boot with cgroup_enable=memory and without cgroup_disable= on the kernel command line, or change to cgroup v2: systemd.unified_cgroup_hierarchy=1`},
		{What: "v1", Node: late("", "failCgroupV1: false\n", map[string]string{"/proc/mounts": v1 + "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n"}),
			Want: right},
	})
}

func TestMemoryManager(t *testing.T) {
	node := func(flags, config string) *hosttest.Machine {
		return late(flags, config, map[string]string{"/proc/meminfo": "MemTotal:    4194304 kB\n", "/sys/devices/system/node/node0/meminfo": ""})
	}
	const ok, static = "reservations that the memory manager accepts", "memoryManagerPolicy: Static\n"
	const right, isStatic = "\npass\nwant: " + ok + "\ngot: " + ok, inConfig + "memoryManagerPolicy: Static"
	wrong := func(got, seen, sum string) string {
		return "\nfail\nwant: " + ok + "\ngot: " + got + seen + "\nremedy: set reservedMemory to " + sum +
			" of memory in total: kubeReserved + systemReserved + evictionHard's memory.available"
	}
	const hundred = "reservedMemory: [{numaNode: 0, limits: {memory: 100Mi}}]\n"
	checkstest.RunOne(t, "kubelet.memory-manager", checks.Boot, []checkstest.Case{
		{What: "none", Node: node("", ""), Want: right},
		{What: "alone", Node: node("", static),
			Want: wrong("reservedMemory has 0 of memory, but kubelet reserves 100Mi", isStatic, "100Mi")},
		{What: "the default eviction", Node: node("", static+hundred), Want: right},
		{What: "everything, by a flag", Node: node("--reserved-memory 0:memory=1536Mi", static+
			"kubeReserved: {memory: 512Mi}\nsystemReserved: {memory: 0.5Gi}\nevictionHard: {memory.available: 512Mi}\n"), Want: right},
		{What: "a percentage", Node: node("", static+"evictionHard: {memory.available: 25%}\nreservedMemory: [{limits: {memory: 1Gi}}]\n"), Want: right},
		{What: "no eviction", Node: node("", static+"evictionHard: {}\nkubeReserved: {memory: 100Mi}\n"+hundred), Want: right},
		{What: "a sum that is too large", Node: node("", static+"kubeReserved: {memory: 50Mi}\n"+
			"reservedMemory: [{numaNode: 0, limits: {memory: 200Mi}}]\n"), Want: wrong("reservedMemory has 200Mi of memory, but kubelet reserves 150Mi",
			isStatic+inConfig+"reservedMemory.0.limits.memory: 200Mi"+inConfig+"kubeReserved.memory: 50Mi", "150Mi")},
		{What: "another NUMA node", Node: node("", static+"reservedMemory: [{numaNode: 3, limits: {memory: 100Mi}}]\n"),
			Want: wrong("reservedMemory names NUMA node 3, and the machine has 0", inConfig+"reservedMemory.0.limits.memory: 100Mi", "100Mi")},
		{What: "an unknown policy", Node: node("", "memoryManagerPolicy: static\n"), Want: "\nfail\nwant: " + ok +
			"\ngot: memoryManagerPolicy is \"static\"; it must be None or Static" + inConfig + "memoryManagerPolicy: static" +
			"\nremedy: set memoryManagerPolicy to None or Static"},
	})
}

func TestPolicyOptions(t *testing.T) {
	const static, ok = "cpuManagerPolicy: static\n", "options that kubelet's managers accept"
	const right = "\npass\nwant: " + ok + "\ngot: " + ok
	wrong := func(got, seen string) string {
		return "\nfail\nwant: " + ok + "\ngot: " + got + seen + "\nremedy: remove the option, or enable the feature gate that it needs"
	}
	node := func(flags, config, version string) *hosttest.Machine {
		m := late(flags, config, nil)
		m.Version["/usr/bin/kubelet"] = "Kubernetes " + version
		return m
	}
	const align, fast = static + "cpuManagerPolicyOptions: {align-by-socket: \"true\"}\n", "cpuManagerPolicyOptions: {fast: \"true\"}\n"
	const aligned = inConfig + "cpuManagerPolicyOptions.align-by-socket: true"
	checkstest.RunOne(t, "kubelet.policy-options", checks.Boot, []checkstest.Case{
		{What: "none", Node: node("", "", "v1.37.2"), Want: right},
		{What: "a stable one", Node: node("--cpu-manager-policy=static --cpu-manager-policy-options=full-pcpus-only=true", "", "v1.37.2"), Want: right},
		{What: "an alpha one", Node: node("", align, "v1.37.2"),
			Want: wrong("cpuManagerPolicyOptions has align-by-socket, which needs the feature gate CPUManagerPolicyAlphaOptions", aligned)},
		{What: "an alpha one with its gate", Node: node("", align+"featureGates: {CPUManagerPolicyAlphaOptions: true}\n", "v1.37.2"), Want: right},
		{What: "an alpha one with every gate", Node: node("--feature-gates=AllAlpha=true", align, "v1.37.2"), Want: right},
		{What: "an alpha one of a later kubelet", Node: node("", align, "v1.40.0"), Want: right},
		{What: "an unknown one", Node: node("", static+fast, "v1.37.2"),
			Want: wrong("cpuManagerPolicyOptions has fast, which this kubelet does not have", inConfig+"cpuManagerPolicyOptions.fast: true")},
		{What: "an unknown one of a later kubelet", Node: node("", static+fast, "v1.40.0"), Want: right},
		{What: "not yet in this kubelet", Node: node("", static+"cpuManagerPolicyOptions: {strict-cpu-reservation: \"true\"}\n", "v1.31.4"),
			Want: wrong("cpuManagerPolicyOptions has strict-cpu-reservation, which this kubelet does not have",
				inConfig+"cpuManagerPolicyOptions.strict-cpu-reservation: true")},
		{What: "without the static policy", Node: node("", fast, "v1.37.2"),
			Want: wrong("cpuManagerPolicyOptions has fast, but cpuManagerPolicy is not static", inConfig+"cpuManagerPolicyOptions.fast: true")},
		{What: "options that exclude each other", Node: node("", static+"cpuManagerPolicyOptions: {distribute-cpus-across-numa: \"true\", "+
			"prefer-align-cpus-by-uncorecache: \"true\"}\n", "v1.37.2"),
			Want: wrong("cpuManagerPolicyOptions prefer-align-cpus-by-uncorecache and distribute-cpus-across-numa exclude each other",
				inConfig+"cpuManagerPolicyOptions.prefer-align-cpus-by-uncorecache: true"+
					inConfig+"cpuManagerPolicyOptions.distribute-cpus-across-numa: true")},
		{What: "topology options that kubelet ignores", Node: node("", "topologyManagerPolicyOptions: {fast: \"1\"}\n", "v1.37.2"), Want: right},
		{What: "topology options", Node: node("", "topologyManagerPolicy: restricted\ntopologyManagerPolicyOptions: "+
			"{max-allowable-numa-nodes: \"2\"}\n", "v1.37.2"),
			Want: wrong("topologyManagerPolicyOptions max-allowable-numa-nodes is \"2\"; it must be a number, at least 8",
				inConfig+"topologyManagerPolicyOptions.max-allowable-numa-nodes: 2")},
	})
}

func TestNodeIP(t *testing.T) {
	node := func(ip string) *hosttest.Machine {
		m := late("--node-ip="+ip, "", nil)
		m.IPs = []netip.Addr{netip.MustParseAddr("10.0.0.7"), netip.MustParseAddr("fd00::7")}
		return m
	}
	const ok, remedy = "addresses of this machine's links",
		"\nremedy: correct --node-ip, or start kubelet after the link has its address: `systemctl edit kubelet`, After=network-online.target"
	for ip, want := range map[string]string{
		"10.0.0.7": "", "10.0.0.7,fd00::7": "", "203.0.113.9": "no link has 203.0.113.9", "10.0.0.7,fd00::9": "no link has fd00::9",
		"127.0.0.1": "127.0.0.1 is a loopback address", "fe80::1": "fe80::1 is a link-local address", "224.0.0.1": "224.0.0.1 is a multicast address",
	} {
		text := "\npass\nwant: " + ok + "\ngot: " + ok + inUnitFile + "--node-ip=" + ip
		if want != "" {
			text = "\nwarn\nwant: " + ok + "\ngot: " + want + inUnitFile + "--node-ip=" + ip + remedy
		}
		checkstest.RunOne(t, "kubelet.node-ip", checks.Run, []checkstest.Case{{What: ip, Node: node(ip), Want: text}})
	}
	checkstest.RunOne(t, "kubelet.node-ip", checks.Run, []checkstest.Case{{What: "unspecified", Node: node("0.0.0.0,::"),
		Want: "skipped\nskipped: kubelet has no --node-ip with a particular address"}})
}

func TestNodeName(t *testing.T) {
	const joined, ok = "--kubeconfig=/etc/kubernetes/kubelet.conf ", "a valid name that no other machine has by default"
	for _, c := range []struct{ what, flags, hostname, verdict, got, seen string }{
		{"a host name", joined, "Node1.example.com", "pass", ok, "\nevidence: /proc/sys/kernel/hostname: Node1.example.com"},
		{"localhost", joined, "localhost", "warn", "the name is localhost", "\nevidence: /proc/sys/kernel/hostname: localhost"},
		{"Red Hat's default", joined, "localhost.localdomain", "warn", "the name is localhost.localdomain",
			"\nevidence: /proc/sys/kernel/hostname: localhost.localdomain"},
		{"an underscore", joined, "my_node", "warn", "the name my_node is not a DNS subdomain", "\nevidence: /proc/sys/kernel/hostname: my_node"},
		{"an override", joined + "--hostname-override=n1", "localhost", "pass", ok, inUnitFile + "--hostname-override=n1"},
		{"standalone", "", "localhost", "skipped", "", "skipped: kubelet has no --kubeconfig"},
		{"not registered", joined + "--register-node=false", "localhost", "skipped", "", "skipped: kubelet does not register its Node"},
	} {
		want := "\n" + c.verdict + "\nwant: " + ok + "\ngot: " + c.got + c.seen
		switch c.verdict {
		case "warn":
			want += "\nremedy: run `hostnamectl set-hostname NAME`, or set --hostname-override; find out why cloud-init or DHCP did not set it " +
				"before kubelet started"
		case "skipped":
			want = "skipped\n" + c.seen
		}
		m := late(c.flags, "", nil)
		m.Sysctl("kernel/hostname", c.hostname)
		checkstest.RunOne(t, "kubelet.node-name", checks.Run, []checkstest.Case{{What: c.what, Node: m, Want: want}})
	}
}

func TestShutdownGrace(t *testing.T) {
	const ok, period = "a delay of at least shutdownGracePeriod", "shutdownGracePeriod: 60s\n"
	const right = "\npass\nwant: " + ok + "\ngot: " + ok + inConfig + "shutdownGracePeriod: 60s"
	const login, dir = "[Login]\nInhibitDelayMaxSec=", "/logind.conf.d/"
	debian := "/usr/lib/systemd" + dir + "unattended-upgrades-logind-maxdelay.conf"
	node := func(config string, files map[string]string) *hosttest.Machine { return late("", config, files) }
	own := "/etc/systemd" + dir + "99-kubelet.conf"
	checkstest.RunOne(t, "kubelet.shutdown-grace", checks.Run, []checkstest.Case{
		{What: "none", Node: node("", nil), Want: "skipped\nskipped: kubelet has no shutdownGracePeriod"},
		{What: "no file", Node: node(period, nil), Want: right},
		{What: "kubelet's file", Node: node(period, map[string]string{own: login + "60\n"}), Want: right},
		{What: "an earlier file, and kubelet's", Node: node(period, map[string]string{"/etc/systemd" + dir + "10-a.conf": login + "5s\n"}), Want: right},
		{What: "a file of the package that comes later", Node: node(period, map[string]string{own: login + "60\n", debian: login + "30\n"}), Want: `
warn
want: a delay of at least shutdownGracePeriod
got: 30s, shutdownGracePeriod 1m0s
evidence: /var/lib/kubelet/config.yaml: shutdownGracePeriod: 60s
evidence: ` + debian + `:2: InhibitDelayMaxSec=30
evidence: ` + own + `: InhibitDelayMaxSec=1m0s, overridden
remedy: create /etc/systemd/logind.conf.d/unattended-upgrades-logind-maxdelay.conf with ` + "`[Login]` and `InhibitDelayMaxSec=60`" + `, which replaces ` +
			debian + "; then run `systemctl restart systemd-logind kubelet`"},
		{What: "a later file that allows more", Node: node(period, map[string]string{debian: login + "2min\n"}), Want: right},
		{What: "masked", Node: node(period, map[string]string{debian: login + "30\n",
			"/etc/systemd" + dir + "unattended-upgrades-logind-maxdelay.conf": "-> /dev/null"}), Want: right},
		{What: "by priority", Node: node("shutdownGracePeriodByPodPriority: [{priority: 0, shutdownGracePeriodSeconds: 20}, {priority: 9, "+
			"shutdownGracePeriodSeconds: 20}]\n", map[string]string{"/run/systemd" + dir + "zz.conf": login + "30s\n"}), Want: `
warn
want: a delay of at least shutdownGracePeriod
got: 30s, shutdownGracePeriod 40s
evidence: /var/lib/kubelet/config.yaml: shutdownGracePeriodByPodPriority.1.shutdownGracePeriodSeconds: 20
evidence: /run/systemd/logind.conf.d/zz.conf:2: InhibitDelayMaxSec=30s
remedy: create /etc/systemd/logind.conf.d/zz.conf with ` + "`[Login]` and `InhibitDelayMaxSec=40`" + `, which replaces ` +
			"/run/systemd/logind.conf.d/zz.conf; then run `systemctl restart systemd-logind kubelet`"},
	})
}
