package checks_test

import (
	"maps"
	"syscall"
	"testing"

	"nodegate/checks"
	"nodegate/internal/host/hosttest"
)

const forwardPolicy = "sysctl \"net.ipv4.ip_forward\" { value = 1 }\n"

func TestWhoWinsInAnImage(t *testing.T) {
	own := "# ours\nnet.ipv4.ip_forward = 1\n"
	judgeSettings(t, "sysctl.who-wins", checks.Image, []settingCase{
		{name: "a distribution's 99-sysctl.conf sorts after kops'", policy: forwardPolicy, tree: map[string]string{
			"/etc/sysctl.d/99-k8s-general.conf": "net.ipv4.ip_forward = 1\n",
			"/etc/sysctl.d/99-sysctl.conf":      "-> ../sysctl.conf",
			"/etc/sysctl.conf":                  "# CIS 3.1.1\nnet.ipv4.ip_forward = 0\n",
		}, want: `warn
want: the policy's values win
got: net.ipv4.ip_forward=0 at boot, net.ipv4.ip_forward=0 at sysctl --system
evidence: /etc/sysctl.d/99-sysctl.conf:2: net.ipv4.ip_forward = 0; the policy wants 1, as /etc/sysctl.d/99-k8s-general.conf:1 says
evidence: /etc/sysctl.conf:2: net.ipv4.ip_forward = 0; the policy wants 1, as /etc/sysctl.d/99-k8s-general.conf:1 says
remedy: take "net.ipv4.ip_forward = 0" out of /etc/sysctl.d/99-sysctl.conf:2; take "net.ipv4.ip_forward = 0" out of /etc/sysctl.conf:2`},
		{name: "/etc/sysctl.conf that nobody links wins only later", policy: forwardPolicy, tree: map[string]string{
			"/etc/sysctl.d/99-zz-nodegate.conf": own,
			"/etc/sysctl.conf":                  "net.ipv4.ip_forward=0",
		}, want: `warn
want: the policy's values win
got: net.ipv4.ip_forward=0 at sysctl --system
evidence: /etc/sysctl.conf:1: net.ipv4.ip_forward = 0; the policy wants 1, as /etc/sysctl.d/99-zz-nodegate.conf:2 says
evidence: /etc/sysctl.d/99-zz-nodegate.conf:2: net.ipv4.ip_forward = 1
remedy: take "net.ipv4.ip_forward = 0" out of /etc/sysctl.conf:1`},
		{name: "a glob loses against our own line, a masked file is not read", policy: "sysctl \"net.ipv4.conf.all.rp_filter\" { value = 0 }\n", tree: map[string]string{
			"/usr/lib/sysctl.d/99-zzz-vendor.conf": "net.ipv4.conf.*.rp_filter = 2\n",
			"/usr/lib/sysctl.d/99-zzzz.conf":       "net.ipv4.conf.all.rp_filter = 1\n",
			"/etc/sysctl.d/99-zzzz.conf":           "-> /dev/null",
			"/etc/sysctl.d/99-zz-nodegate.conf":    "net.ipv4.conf.all.rp_filter = 0\n",
		}, want: `pass
want: the policy's values win
got: the policy's values win
evidence: /etc/sysctl.d/99-zz-nodegate.conf:1: net.ipv4.conf.all.rp_filter = 0`},
		{name: "a glob wins where nobody names the parameter", policy: "sysctl \"net.ipv4.conf.all.rp_filter\" { value = 0 }\n", tree: map[string]string{
			"/usr/lib/sysctl.d/50-default.conf": "net.ipv4.conf.*.rp_filter = 2\n",
		}, want: `warn
want: the policy's values win
got: net.ipv4.conf.all.rp_filter=2 at boot and at sysctl --system
evidence: /usr/lib/sysctl.d/50-default.conf:1: net.ipv4.conf.*.rp_filter = 2; the policy wants 0
remedy: take "net.ipv4.conf.*.rp_filter = 2" out of /usr/lib/sysctl.d/50-default.conf:1`},
		{name: "bounds have no one value", policy: "sysctl \"fs.inotify.max_user_watches\" { min = 1 }\n", tree: map[string]string{"/etc/hostname": "n"},
			want: "skip: the policy has no parameter with one exact value"},
	})
}

func TestWhoWinsAgainstTuneD(t *testing.T) {
	tuned := func(sysctls, main, sysctlD string) map[string]string {
		return map[string]string{
			"/etc/systemd/system/multi-user.target.wants/tuned.service": "-> /usr/lib/systemd/system/tuned.service",
			"/etc/tuned/active_profile":                                 "node\n", "/etc/tuned/tuned-main.conf": main,
			"/etc/tuned/node/tuned.conf":     "[main]\ninclude=base\n",
			"/usr/lib/tuned/base/tuned.conf": "[sysctl]\n" + sysctls, "/etc/sysctl.d/50-own.conf": sysctlD,
		}
	}
	const applies = "evidence: tuned.service: applies the parameters of its profile whenever it starts (node)"
	const wins = "pass\nwant: the policy's values win\ngot: the policy's values win"
	off := tuned("net.ipv4.ip_forward=0\n", "", "")
	delete(off, "/etc/systemd/system/multi-user.target.wants/tuned.service")
	judgeSettings(t, "sysctl.who-wins", checks.Image, []settingCase{
		{name: "the included profile has it otherwise", policy: forwardPolicy, tree: tuned("net.ipv4.ip_forward=0\n", "", ""), want: `warn
want: the policy's values win
got: net.ipv4.ip_forward=0 by TuneD
evidence: /usr/lib/tuned/base/tuned.conf:2: TuneD writes net.ipv4.ip_forward = 0; the policy wants 1
evidence: tuned.service: applies the parameters of its profile whenever it starts (node)
remedy: take it out of /usr/lib/tuned/base/tuned.conf:2, or write "net.ipv4.ip_forward = 1" to a file in /etc/sysctl.d, which TuneD applies after its profile unless reapply_sysctl is 0`},
		{name: "TuneD applies sysctl.d after it", policy: forwardPolicy, tree: tuned("net.ipv4.ip_forward=0\n", "", "net.ipv4.ip_forward = 1\n"),
			want: wins + "\nevidence: /etc/sysctl.d/50-own.conf:1: net.ipv4.ip_forward = 1\n" + applies},
		{name: "TuneD does not apply sysctl.d after it", policy: forwardPolicy, tree: tuned("net.ipv4.ip_forward=0\n", "reapply_sysctl=0\n", "net.ipv4.ip_forward = 1\n"), want: `warn
want: the policy's values win
got: net.ipv4.ip_forward=0 by TuneD
evidence: /usr/lib/tuned/base/tuned.conf:2: TuneD writes net.ipv4.ip_forward = 0; the policy wants 1
evidence: /etc/sysctl.d/50-own.conf:1: net.ipv4.ip_forward = 1
remedy: take it out of /usr/lib/tuned/base/tuned.conf:2, or write "net.ipv4.ip_forward = 1" to a file in /etc/sysctl.d, which TuneD applies after its profile unless reapply_sysctl is 0`},
		{name: "it only raises", policy: "sysctl \"net.core.somaxconn\" { value = 4096 }\n", tree: tuned("net.core.somaxconn=>2048\n", "", ""), want: wins + "\n" + applies},
		{name: "it raises above", policy: "sysctl \"net.core.somaxconn\" { value = 1024 }\n", tree: tuned("net.core.somaxconn=>2048\n", "", ""), want: `warn
want: the policy's values win
got: net.core.somaxconn=>2048 by TuneD
evidence: /usr/lib/tuned/base/tuned.conf:2: TuneD writes net.core.somaxconn = >2048; the policy wants 1024
evidence: tuned.service: applies the parameters of its profile whenever it starts (node)
remedy: take it out of /usr/lib/tuned/base/tuned.conf:2, or write "net.core.somaxconn = 1024" to a file in /etc/sysctl.d, which TuneD applies after its profile unless reapply_sysctl is 0`},
		{name: "only on some machines", policy: forwardPolicy, tree: tuned("net.ipv4.ip_forward=0\nuname_regex=aarch64\n", "", ""),
			want: wins + "\nevidence: /usr/lib/tuned/base/tuned.conf:2: TuneD writes net.ipv4.ip_forward = 0; the policy wants 1; whether it does depends on uname_regex=aarch64\n" + applies},
		{name: "TuneD is off", policy: forwardPolicy, tree: off, want: wins},
	})
}

func TestWhoWinsNamesWriters(t *testing.T) {
	m := node(map[string]string{
		"/etc/sysctl.d/99-zz-nodegate.conf": "net.ipv4.ip_forward = 1\nkernel.panic = 5\n",
		"/var/lib/kubelet/config.yaml":      "kind: KubeletConfiguration\n",
		"/etc/tuned/active_profile":         "throughput-performance\n", "/usr/lib/tuned/throughput-performance/tuned.conf": "[sysctl]\nvm.swappiness=10\n",
		"/etc/sysctl.d/99-k8s-general.conf":         "# kops\n",
		"/usr/lib/systemd/libsystemd-shared-257.so": "", "/etc/systemd/networkd.conf": "[Network]\nIPv4Forwarding=yes\n",
	}, nil)
	m.Units = map[string][2]string{"docker.service": {"active", "enabled"}, "tuned.service": {"inactive", "enabled"}, "systemd-networkd.service": {"active", "enabled"}}
	p := load(t, "check \"sysctl.who-wins\" {}\n"+forwardPolicy+`
		sysctl "kernel.panic" { value = 5 }
		sysctl "net.netfilter.nf_conntrack_max" { value = 131072 }`)
	r := checks.Inspect(t.Context(), m.Host(), checks.Run, checks.For(p, checks.Run)).Results
	got := ""
	for _, e := range r[len(r)-1].State.Evidence {
		got += e.Source + ": " + e.Text + "\n"
	}
	equal(t, "evidence", `
/etc/sysctl.d/99-zz-nodegate.conf:1: net.ipv4.ip_forward = 1
/etc/sysctl.d/99-zz-nodegate.conf:2: kernel.panic = 5
kubelet: writes kernel.panic = 10 at its start, protectKernelDefaults is off
kube-proxy: writes net.netfilter.nf_conntrack_max at its start, unless its conntrack settings are 0
/etc/systemd/networkd.conf:2: systemd-networkd writes net.ipv4.ip_forward: IPv4Forwarding=yes
docker.service: writes net.ipv4.ip_forward = 1 at its start
tuned.service: applies the parameters of its profile whenever it starts (throughput-performance)
/etc/sysctl.d/99-k8s-general.conf: nodeup of kops writes it and runs sysctl --system`, got)
}

func TestIPForwardWriters(t *testing.T) {
	networkd := map[string][2]string{"systemd-networkd.service": {"active", "enabled"}}
	off := node(nil, map[string]string{"net/ipv4/ip_forward": "0"})
	reset := node(map[string]string{"/etc/sysctl.d/99-hardening.conf": "net.ipv4.conf.all.forwarding=0\n"}, map[string]string{"net/ipv4/ip_forward": "1"})
	unread := map[string]error{"r /etc/sysctl.d/a.conf": syscall.EIO}
	offUnread := node(map[string]string{"/etc/sysctl.d/a.conf": ""}, map[string]string{"net/ipv4/ip_forward": "0"})
	onUnread := node(map[string]string{"/etc/sysctl.d/a.conf": ""}, map[string]string{"net/ipv4/ip_forward": "1"})
	offUnread.Refuse, onUnread.Refuse = unread, unread
	again := node(map[string]string{
		"/etc/sysctl.d/99-hardening.conf":   "net.ipv4.conf.all.forwarding=0\n",
		"/etc/sysctl.d/99-zz-nodegate.conf": "net.ipv4.ip_forward=1\n",
	}, map[string]string{"net/ipv4/ip_forward": "1"})
	by := func(version string) *hosttest.Machine {
		m := node(map[string]string{
			"/usr/lib/systemd/libsystemd-shared-" + version + ".so": "",
			"/etc/systemd/networkd.conf.d/10-hard.conf":             "[Network]\nIPv4Forwarding=no\n",
		}, map[string]string{"net/ipv4/ip_forward": "1"})
		m.Units = networkd
		return m
	}
	const allowed = `pass
want: 1, and nothing sets it to 0
got: 1, and nothing sets it to 0
evidence: /proc/sys/net/ipv4/ip_forward: 1`
	networkd256 := func(files map[string]string, sysctl string) *hosttest.Machine {
		m := node(files, map[string]string{"net/ipv4/ip_forward": sysctl})
		m.Files["/usr/lib/systemd/libsystemd-shared-256.so"] = ""
		m.Units = networkd
		m.Links = map[string]*hosttest.Link{"lo": {}, "eth0": {}, "cni0": {Kind: "bridge"}}
		return m
	}
	onLink := func(match string, more map[string]string) *hosttest.Machine {
		m := networkd256(map[string]string{"/etc/systemd/network/10-uplink.network": match + "[Network]\nIPv4Forwarding=no\n"}, "1")
		maps.Copy(m.Files, more)
		return m
	}
	with6 := func(value string) *hosttest.Machine {
		return networkd256(map[string]string{"/etc/systemd/networkd.conf": "[Network]\nIPv6Forwarding=" + value + "\n"}, "1")
	}
	forgotten := networkd256(map[string]string{"/etc/systemd/network/10-uplink.network": "[Match]\nName=eth0\n[Network]\nIPForward=yes\n"}, "0")
	judgeSettings(t, "ip-forward.writers", checks.Run, []settingCase{
		{name: "off, and the policy has it", node: off, policy: forwardPolicy, want: `warn
want: 1, and nothing sets it to 0
got: is 0
because: sysctl.net.ipv4.ip_forward
evidence: /proc/sys/net/ipv4/ip_forward: 0
remedy: run: sysctl -w net.ipv4.ip_forward=1`},
		{name: "off, and a file that cannot be read", node: offUnread, want: `warn
want: 1, and nothing sets it to 0
got: is 0
evidence: /proc/sys/net/ipv4/ip_forward: 0
remedy: run: sysctl -w net.ipv4.ip_forward=1`},
		{name: "on, and a file that cannot be read", node: onUnread, want: "unknown\nerror: reading configuration: open /etc/sysctl.d/a.conf: input/output error"},
		{name: "reset under its other name", node: reset, policy: forwardPolicy, want: `warn
want: 1, and nothing sets it to 0
got: 0 by /etc/sysctl.d/99-hardening.conf:1
evidence: /proc/sys/net/ipv4/ip_forward: 1
evidence: /etc/sysctl.d/99-hardening.conf:1: net.ipv4.conf.all.forwarding = 0
remedy: take "net.ipv4.conf.all.forwarding = 0" out of /etc/sysctl.d/99-hardening.conf:1`},
		{name: "reset, and set again later", node: again, want: `pass
want: 1, and nothing sets it to 0
got: 1, and nothing sets it to 0
evidence: /proc/sys/net/ipv4/ip_forward: 1`},
		{name: "networkd 256", node: by("256"), want: `warn
want: 1, and nothing sets it to 0
got: 0 by /etc/systemd/networkd.conf.d/10-hard.conf:2
evidence: /proc/sys/net/ipv4/ip_forward: 1
evidence: /etc/systemd/networkd.conf.d/10-hard.conf:2: IPv4Forwarding=no
remedy: take "IPv4Forwarding=no" out of /etc/systemd/networkd.conf.d/10-hard.conf:2`},
		{name: "networkd 256, for one link", node: onLink("[Match]\nName=eth0\n", nil), want: `warn
want: 1, and nothing sets it to 0
got: 0 on eth0 by /etc/systemd/network/10-uplink.network:4
evidence: /proc/sys/net/ipv4/ip_forward: 1
evidence: /etc/systemd/network/10-uplink.network:4: IPv4Forwarding=no
remedy: take "IPv4Forwarding=no" out of /etc/systemd/network/10-uplink.network:4`},
		{name: "networkd 256, a link that an earlier file takes", node: onLink("[Match]\nName=eth0\n", map[string]string{
			"/etc/systemd/network/05-first.network": "[Match]\nName=eth*\n[Network]\nDHCP=yes\n"}), want: allowed},
		{name: "networkd 256, a file that may be the link's, and forwarding is on there", node: onLink("[Match]\nMACAddress=52:54:00:12:34:56\n", map[string]string{
			"/proc/sys/net/ipv4/conf/eth0/forwarding": "1\n"}), want: allowed},
		{name: "networkd 256, a file that may be the link's, and forwarding is off there", node: onLink("[Match]\nMACAddress=52:54:00:12:34:56\n", map[string]string{
			"/proc/sys/net/ipv4/conf/eth0/forwarding": "0\n"}), want: `warn
want: 1, and nothing sets it to 0
got: 0 on eth0 by /etc/systemd/network/10-uplink.network:4
evidence: /proc/sys/net/ipv4/ip_forward: 1
evidence: /etc/systemd/network/10-uplink.network:4: IPv4Forwarding=no
remedy: take "IPv4Forwarding=no" out of /etc/systemd/network/10-uplink.network:4`},
		{name: "networkd 256, IPv6, which this policy does not ask for", node: with6("no"), want: allowed},
		{name: "networkd 256, IPv6", node: with6("no"), policy: "sysctl \"net.ipv6.conf.default.forwarding\" { value = 1 }", want: `warn
want: 1, and nothing sets it to 0
got: 0 by /etc/systemd/networkd.conf:2
evidence: /proc/sys/net/ipv4/ip_forward: 1
evidence: /etc/systemd/networkd.conf:2: IPv6Forwarding=no
remedy: take "IPv6Forwarding=no" out of /etc/systemd/networkd.conf:2`},
		{name: "off, and an IPForward= that systemd 256 forgot", node: forgotten, want: `warn
want: 1, and nothing sets it to 0
got: is 0
evidence: /proc/sys/net/ipv4/ip_forward: 0
evidence: /etc/systemd/network/10-uplink.network:4: IPForward=yes is not read from systemd 256 on
remedy: run: sysctl -w net.ipv4.ip_forward=1`},
		{name: "networkd 252 does not know the setting", node: by("252"), want: `pass
want: 1, and nothing sets it to 0
got: 1, and nothing sets it to 0
evidence: /proc/sys/net/ipv4/ip_forward: 1`},
	})
}
