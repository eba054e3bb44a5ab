package kubelet_test

import (
	"strings"
	"syscall"
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

func TestCgroupV1(t *testing.T) {
	node := func(mount, config, version string) *hosttest.Machine {
		m := withUnit("--config="+kubeadmConfig, map[string]string{"/proc/mounts": mount, kubeadmConfig: header + config})
		m.Version = map[string]string{"/usr/bin/kubelet": "Kubernetes " + version}
		return m
	}
	const v1, v2 = "tmpfs /sys/fs/cgroup tmpfs ro 0 0\n", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"
	const right = "\npass\nwant: v2, or a kubelet that runs on v1\ngot: v2, or a kubelet that runs on v1\n"
	checkstest.RunOne(t, "kubelet.cgroup-v1", checks.Boot, []checkstest.Case{
		{What: "v2", Node: node(v2, "", "v1.36.3"), Want: right},
		{What: "v1 and 1.35", Node: node(v1, "", "v1.35.0"), Want: `
fail
want: v2, or a kubelet that runs on v1
got: v1, and kubelet 1.35
evidence: /proc/mounts: tmpfs at /sys/fs/cgroup
remedy: boot with systemd.unified_cgroup_hierarchy=1 on the kernel command line, or, if the kernel has memory and cpuset for cgroup v1, set failCgroupV1: false`},
		{What: "no cgroup", Node: node("proc /proc proc rw 0 0\n", "", "v1.36.3"), Want: "unknown\nerror: /proc/mounts lists no mount at /sys/fs/cgroup"},
		{What: "v1 and 1.34", Node: node(v1, "", "v1.34.4"), Want: right + "evidence: /proc/mounts: tmpfs at /sys/fs/cgroup"},
		{What: "v1, and a kubelet that reports no version", Node: node(v1, "", "hangs"), Want: `
unknown
error: /usr/bin/kubelet --version did not end: context deadline exceeded`},
		{What: "v1, tolerated", Node: node(v1, "failCgroupV1: false\n", "v1.36.3"),
			Want: right + `evidence: /proc/mounts: tmpfs at /sys/fs/cgroup
evidence: /var/lib/kubelet/config.yaml: failCgroupV1: false`},
		{What: "v1 and LimitedSwap", Node: node(v1, "failCgroupV1: false\nmemorySwap: {swapBehavior: LimitedSwap}\n", "v1.36.3"), Want: `
fail
want: v2, or a kubelet that runs on v1
got: v1, and LimitedSwap
evidence: /proc/mounts: tmpfs at /sys/fs/cgroup
evidence: /var/lib/kubelet/config.yaml: failCgroupV1: false
evidence: /var/lib/kubelet/config.yaml: memorySwap.swapBehavior: LimitedSwap
remedy: boot with systemd.unified_cgroup_hierarchy=1 on the kernel's command line, or set memorySwap.swapBehavior: NoSwap`},
		{What: "v1 and LimitedSwap, with the gate off",
			Node: node(v1, "memorySwap: {swapBehavior: LimitedSwap}\nfeatureGates: {NodeSwap: false}\n", "v1.31.4"),
			Want: right + "evidence: /proc/mounts: tmpfs at /sys/fs/cgroup"},
		{What: "no kubelet", Node: checkstest.Node(nil, nil), Want: "skipped\nskipped: no kubelet configuration found"},
	})
}

func TestRootDir(t *testing.T) {
	node := func(options string, space host.Space, files map[string]string) *hosttest.Machine {
		m := withUnit("--root-dir=/data/kubelet", with(files, "/proc/1/mounts", "/dev/vda / ext4 rw 0 0\n/dev/sdb /data ext4 "+options+" 0 0\n"))
		m.Spaces = map[string]host.Space{"/data/kubelet": space}
		return m
	}
	want := func(verdict, got, seen string) string {
		return "\n" + verdict + "\nwant: a writable file system with space\ngot: " + got + "\n" + seen
	}
	const remedy = "\nremedy: find out why it is read-only (`dmesg`: the kernel remounts a file system with errors), or free space: " +
		"run `crictl rmi --prune` or `journalctl --vacuum-size=100M`"
	missing := node("ro", host.Space{Free: 1 << 30}, nil)
	missing.Refuse = map[string]error{"s /data/kubelet": syscall.ENOENT}
	checkstest.RunOne(t, "kubelet.root-dir", checks.Boot, []checkstest.Case{
		{What: "space, on a file system without inode counts", Node: node("rw", host.Space{Free: 1 << 20}, nil),
			Want: want("pass", "a writable file system with space", "")},
		{What: "read-only", Node: node("ro,relatime", host.Space{Free: 1 << 20}, nil),
			Want: want("fail", "read-only", "evidence: /proc/1/mounts: /dev/sdb /data ext4 ro,relatime"+remedy)},
		{What: "the directory is missing on a read-only disk", Node: missing,
			Want: want("fail", "read-only", "evidence: /proc/1/mounts: /dev/sdb /data ext4 ro"+remedy)},
		{What: "full", Node: node("rw", host.Space{Free: 4096}, nil),
			Want: want("fail", "4096 bytes left", "evidence: /data/kubelet: 4096 bytes left"+remedy)},
		{What: "no inodes", Node: node("rw", host.Space{Free: 1 << 30, Inodes: 10}, nil),
			Want: want("fail", "no inode left", "evidence: /data/kubelet: no inode left\nremedy: free inodes, which few large files do not: "+
				"`find /data/kubelet -xdev -printf '%h\\n' | sort | uniq -c | sort -n | tail` names the directories with most files")},
		{What: "full, and kubelet has run before", Node: node("rw", host.Space{}, map[string]string{"/data/kubelet/cpu_manager_state": "{}"}),
			Want: want("pass", "a writable file system with space", "evidence: /data/kubelet: 0 bytes left")},
	})
}

func TestCgroupDriver(t *testing.T) {
	const socket = "/run/containerd/containerd.sock"
	node := func(config string, d host.CgroupDriver) *hosttest.Machine {
		m := withUnit("--config="+kubeadmConfig, map[string]string{kubeadmConfig: header + config})
		m.Version = map[string]string{"/usr/bin/kubelet": "Kubernetes v1.31.0"}
		if d.Driver != "" {
			m.Cgroups = map[string]host.CgroupDriver{socket: d}
		}
		return m
	}
	set := func(containerd string) *hosttest.Machine {
		m := node("cgroupDriver: systemd\n", host.CgroupDriver{Driver: "cgroupfs"})
		m.Files["/etc/containerd/config.toml"] = containerd
		return m
	}
	crio := node("cgroupDriver: systemd\ncontainerRuntimeEndpoint: unix:///var/run/crio/crio.sock\n", host.CgroupDriver{})
	crio.Cgroups = map[string]host.CgroupDriver{"/var/run/crio/crio.sock": {Driver: "cgroupfs"}}
	crio.Files["/etc/containerd/config.toml"] = "SystemdCgroup = true\n"
	const restart = "then run `systemctl restart containerd`"
	const differ = "\nwarn\nwant: the runtime's driver\ngot: kubelet systemd, runtime cgroupfs\nevidence: " + socket + ": cgroupfs" +
		"\nevidence: /var/lib/kubelet/config.yaml: cgroupDriver: systemd\nremedy: "
	const right = "\npass\nwant: the runtime's driver\ngot: the runtime's driver\nevidence: " + socket + ": "
	checkstest.RunOne(t, "kubelet.cgroup-driver", checks.Run, []checkstest.Case{
		{What: "both systemd", Node: node("cgroupDriver: systemd\n", host.CgroupDriver{Driver: "systemd"}),
			Want: right + "systemd\nevidence: /var/lib/kubelet/config.yaml: cgroupDriver: systemd"},
		{What: "they differ", Node: node("cgroupDriver: systemd\n", host.CgroupDriver{Driver: "cgroupfs"}), Want: `
warn
want: the runtime's driver
got: kubelet systemd, runtime cgroupfs
evidence: /run/containerd/containerd.sock: cgroupfs
evidence: /var/lib/kubelet/config.yaml: cgroupDriver: systemd
remedy: set SystemdCgroup = true in containerd's configuration (the path depends on its version) and cgroupDriver: systemd in kubelet's`},
		{What: "CRI-O differs", Node: crio, Want: strings.ReplaceAll(differ, socket, "/var/run/crio/crio.sock") +
			`set cgroup_manager = "systemd" in [crio.runtime] of /etc/crio/crio.conf.d/*.conf and cgroupDriver: systemd in kubelet's configuration`},
		{What: "they differ, and kubelet adopts the runtime's", Node: node("", host.CgroupDriver{Driver: "systemd", Told: true}),
			Want: right + "systemd"},
		{What: "set in a file without a version", Node: set("[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc.options]\n  SystemdCgroup = true\n"),
			Want: differ + "write `version = 2` as the first line of /etc/containerd/config.toml: without it containerd 1 ignores SystemdCgroup there, " + restart},
		{What: "set in version 3's table of a file of version 2", Node: set("version = 2\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]\n" +
			"SystemdCgroup = true\n"), Want: differ + "move SystemdCgroup = true in /etc/containerd/config.toml to the table " +
			"[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.runc.options] of version 2, " + restart},
		{What: "set for another handler", Node: set("version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.kata.options]\n" +
			"SystemdCgroup = true\n"), Want: differ + "move SystemdCgroup = true in /etc/containerd/config.toml to the table " +
			"[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options] of version 3, " + restart},
		{What: "set, and the daemon is older than the file", Node: set("version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc.options]\n" +
			"SystemdCgroup = true # as kubelet\n"), Want: differ + "run `systemctl restart containerd`: SystemdCgroup is set in /etc/containerd/config.toml"},
		{What: "commented out", Node: set("version = 2\n#SystemdCgroup = true\n"), Want: differ +
			"set SystemdCgroup = true in containerd's configuration (the path depends on its version) and cgroupDriver: systemd in kubelet's"},
		{What: "no runtime", Node: node("", host.CgroupDriver{}), Want: "skipped\nskipped: the runtime at " + socket + " does not " +
			"report its driver"},
	})
}

func TestResolvConf(t *testing.T) {
	const stub, right = "# by systemd-resolved\nnameserver 127.0.0.53\noptions edns0\n",
		"\npass\nwant: resolvers that a Pod can reach\ngot: resolvers that a Pod can reach\n"
	config := header + "resolvConf: /run/systemd/resolve/resolv.conf\n"
	const remedy = "\nremedy: set resolvConf: /run/systemd/resolve/resolv.conf in kubelet's configuration, as kubeadm does if " +
		"systemd-resolved runs"
	nodeWithout := func(files map[string]string) *hosttest.Machine { return withUnit("--config="+kubeadmConfig, files) }
	node := func(files map[string]string) *hosttest.Machine {
		return nodeWithout(with(files, "/run/systemd/resolve/resolv.conf", "nameserver 10.0.0.2\n"))
	}
	checkstest.RunOne(t, "kubelet.resolv-conf", checks.Run, []checkstest.Case{
		{What: "the stub", Node: node(map[string]string{"/etc/resolv.conf": stub}), Want: `
warn
want: resolvers that a Pod can reach
got: loopback resolver 127.0.0.53
evidence: /etc/resolv.conf: nameserver 127.0.0.53` + remedy},
		{What: "a local resolver, and no systemd-resolved", Node: nodeWithout(map[string]string{"/etc/resolv.conf": "nameserver 127.0.0.1\n"}), Want: `
warn
want: resolvers that a Pod can reach
got: loopback resolver 127.0.0.1
evidence: /etc/resolv.conf: nameserver 127.0.0.1
remedy: create a file with the network's resolvers (` + "`nameserver ADDRESS`" + `), and set resolvConf to it in kubelet's configuration`},
		{What: "as kubeadm does", Node: node(map[string]string{kubeadmConfig: config, "/etc/resolv.conf": stub,
			"/run/systemd/resolve/resolv.conf": "nameserver 10.0.0.2\n"}),
			Want: right + "evidence: /var/lib/kubelet/config.yaml: resolvConf: /run/systemd/resolve/resolv.conf"},
		{What: "missing", Node: nodeWithout(map[string]string{kubeadmConfig: config}), Want: `
fail
want: resolvers that a Pod can reach
got: /run/systemd/resolve/resolv.conf is missing
evidence: /var/lib/kubelet/config.yaml: resolvConf: /run/systemd/resolve/resolv.conf
remedy: start systemd-resolved, which writes /run/systemd/resolve/resolv.conf (` + "`systemctl enable --now systemd-resolved`" + `); or, without it, set resolvConf: /etc/resolv.conf in kubelet's configuration`},
		{What: "missing, and systemd-resolved runs", Node: node(nil), Want: `
fail
want: resolvers that a Pod can reach
got: /etc/resolv.conf is missing` + remedy},
		{What: "a router's link-local address", Node: node(map[string]string{"/etc/resolv.conf": "nameserver 169.254.169.253\nnameserver fe80::1%eth0\n"}), Want: `
warn
want: resolvers that a Pod can reach
got: link-local resolver fe80::1%eth0
evidence: /etc/resolv.conf: nameserver fe80::1%eth0` + remedy},
		{What: "resolvConf is empty", Node: node(map[string]string{kubeadmConfig: header + "resolvConf: \"\"\n"}),
			Want: "skipped\nskipped: kubelet's resolvConf is empty: Pods do not use the node's resolvers"},
	})
}

func TestRuntimeNofile(t *testing.T) {
	node := func(comm, limit string) *hosttest.Machine {
		return checkstest.Node(map[string]string{
			"/proc/9/stat": "9 (" + comm + ") S 1", "/proc/9/cmdline": "/usr/bin/" + comm + "\x00",
			"/proc/9/limits": "Limit                     Soft Limit           Hard Limit           Units     \nMax open files            " + limit +
				"               files     \n",
		}, nil)
	}
	pods := node("containerd", "1024 524288")
	pods.Files["/proc/9/ns/net"] = "-> net:[2]"
	checkstest.RunOne(t, "kubelet.runtime-nofile", checks.Run, []checkstest.Case{
		{What: "Ubuntu 24.04", Node: node("containerd", "1024 524288"), Want: `
warn
want: more than 1024 files, with a bound
got: containerd has 1024
evidence: /proc/9/limits: Max open files 1024 524288
remedy: create /etc/systemd/system/containerd.service.d/nofile.conf with ` + "`[Service]`" + ` and ` + "`LimitNOFILE=1048576`" + `, and restart the runtime; running containers keep their limit`},
		{What: "CRI-O, with another unit name", Node: node("crio", "1024 524288"), Want: `
warn
want: more than 1024 files, with a bound
got: crio has 1024
evidence: /proc/9/limits: Max open files 1024 524288
remedy: create /etc/systemd/system/crio.service.d/nofile.conf with ` + "`[Service]`" + ` and ` + "`LimitNOFILE=1048576`" + `, and restart the runtime; running containers keep their limit`},
		{What: "Debian 12", Node: node("containerd", "1048576 1048576"), Want: "pass\nwant: more than 1024 files, with a bound\ngot: more than 1024 files, with a bound"},
		{What: "infinity", Node: node("crio", "1073741816 1073741816"), Want: `
warn
want: more than 1024 files, with a bound
got: crio has 1073741816
evidence: /proc/9/limits: Max open files 1073741816 1073741816
remedy: create /etc/systemd/system/crio.service.d/nofile.conf with ` + "`[Service]` and `LimitNOFILE=1048576`" + `, and restart the runtime; running containers keep their limit`},
		{What: "a Pod's", Node: pods, Want: "skipped\nskipped: neither containerd nor crio runs here"},
		{What: "none runs", Node: node("bash", "1024 1024"), Want: "skipped\nskipped: neither containerd nor crio runs here"},
	})
}

func TestMounts(t *testing.T) {
	const fstab = "# a comment\nUUID=1 / ext4 defaults 0 1\n/dev/nvme1n1 /var/lib/containerd/ xfs defaults,nofail 0 2\n/dev/sdb /srv ext4 " +
		"defaults 0 2\n" +
		"/dev/sdc /var/lib/kubelet ext4 noauto 0 0\n"
	const root = "/dev/vda / ext4 rw 0 0\n"
	checkstest.RunOne(t, "kubelet.mounts", checks.Run, []checkstest.Case{
		{What: "cloud-init has not finished", Node: checkstest.Node(map[string]string{"/etc/fstab": fstab, "/proc/mounts": root}, nil), Want: `
warn
want: mounted, for programs and devices
got: not mounted: /var/lib/containerd
evidence: /etc/fstab: /dev/nvme1n1 /var/lib/containerd/ xfs defaults,nofail 0 2
remedy: mount it before kubelet and the runtime start: order their units after it with RequiresMountsFor=, and after cloud-config.service if cloud-init writes /etc/fstab`},
		{What: "mounted", Node: checkstest.Node(map[string]string{"/etc/fstab": fstab,
			"/proc/mounts": root + "/dev/nvme1n1 /var/lib/containerd xfs rw 0 0\n"}, nil),
			Want: "pass\nwant: mounted, for programs and devices\ngot: mounted, for programs and devices"},
		{What: "a machine without the file", Node: checkstest.Node(nil, nil), Want: "skipped\nskipped: there is no mount table"},
	})
}

func TestHealthzPort(t *testing.T) {
	const line = "0: 0100007F:2808 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 10 0\n"
	checkstest.RunOne(t, "kubelet.healthz-port", checks.Run, []checkstest.Case{
		{What: "a stranger", Node: checkstest.Node(map[string]string{"/proc/net/tcp": line, "/proc/815/comm": "nginx\n",
			"/proc/815/fd/3": "-> socket:[4711]"}, nil), Want: `
warn
want: free, or used by kubelet
got: port 10248 is used by nginx (pid 815)
evidence: /proc/net/tcp: port 10248: nginx (pid 815)
remedy: stop the other program, or set healthzPort in kubelet's configuration`},
		{What: "its process is hidden, and it did not answer /healthz", Node: checkstest.Node(map[string]string{"/proc/net/tcp": line,
			"/proc/1/ns/net": "-> net:[1]", "/proc/self/ns/net": "-> net:[1]", "/proc/700/ns/net": "-> net:[1]",
			"/proc/700/stat": "700 (kubelet) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 0 0 1 0 100", "/proc/700/cmdline": "kubelet\x00",
			"/proc/700/status": "Name:\tkubelet\nUid:\t0\t0\t0\t0\n", "/proc/uptime": "1000.00 1.00\n"}, nil), Want: `
unknown
error: port 10248 is in use, and its process is not visible`},
		{What: "free", Node: checkstest.Node(map[string]string{"/proc/net/tcp": ""}, nil),
			Want: "pass\nwant: free, or used by kubelet\ngot: free, or used by kubelet"},
	})
}
