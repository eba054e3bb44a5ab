package writers_test

import (
	"testing"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/checks/checkstest"
)

func TestWhoWinsInAnImage(t *testing.T) {
	own := "# ours\nnet.ipv4.ip_forward = 1\n"
	checkstest.RunOne(t, "sysctl.who-wins", checks.Image, []checkstest.Case{
		{What: "a distribution's 99-sysctl.conf sorts after kops'", Policy: checkstest.ForwardPolicy, Tree: map[string]string{
			"/etc/sysctl.d/99-k8s-general.conf": "net.ipv4.ip_forward = 1\n",
			"/etc/sysctl.d/99-sysctl.conf":      "-> ../sysctl.conf",
			"/etc/sysctl.conf":                  "# CIS 3.1.1\nnet.ipv4.ip_forward = 0\n",
		}, Want: `
warn
want: the policy's values win
got: net.ipv4.ip_forward=0 at boot, net.ipv4.ip_forward=0 at sysctl --system
evidence: /etc/sysctl.d/99-sysctl.conf:2: net.ipv4.ip_forward = 0; the policy wants 1, as in /etc/sysctl.d/99-k8s-general.conf:1
evidence: /etc/sysctl.conf:2: net.ipv4.ip_forward = 0; the policy wants 1, as in /etc/sysctl.d/99-k8s-general.conf:1
remedy: remove "net.ipv4.ip_forward = 0" from ROOT/etc/sysctl.d/99-sysctl.conf:2
remove "net.ipv4.ip_forward = 0" from ROOT/etc/sysctl.conf:2`},
		{What: "the size of conntrack's table by its other name", Policy: "sysctl \"net.netfilter.nf_conntrack_max\" { value = 131072 }",
			Tree: map[string]string{"/etc/sysctl.d/50-a.conf": "net.nf_conntrack_max = 65536\n"}, Want: `warn
want: the policy's values win
got: net.netfilter.nf_conntrack_max=65536 at boot and at sysctl --system
evidence: /etc/sysctl.d/50-a.conf:1: net.nf_conntrack_max = 65536; the policy wants 131072
evidence: kube-proxy: writes net.netfilter.nf_conntrack_max at startup unless its conntrack settings are 0
remedy: remove "net.nf_conntrack_max = 65536" from ROOT/etc/sysctl.d/50-a.conf:1`},
		{What: "two lines of one file", Policy: "sysctl \"kernel.panic\" { value = 10 }\nsysctl \"vm.swappiness\" { value = 1 }\n",
			Tree: map[string]string{"/etc/sysctl.d/50-a.conf": "kernel.panic = 0\n# x\nvm.swappiness = 60\n"}, Want: `warn
want: the policy's values win
got: kernel.panic=0 at boot and at sysctl --system, vm.swappiness=60 at boot and at sysctl --system
evidence: /etc/sysctl.d/50-a.conf:1: kernel.panic = 0; the policy wants 10
evidence: /etc/sysctl.d/50-a.conf:3: vm.swappiness = 60; the policy wants 1
remedy: remove "kernel.panic = 0", "vm.swappiness = 60" from ROOT/etc/sysctl.d/50-a.conf:1,3`},
		{What: "the reverse", Policy: "sysctl \"net.nf_conntrack_max\" { value = 131072 }",
			Tree: map[string]string{"/etc/sysctl.d/50-a.conf": "net.netfilter.nf_conntrack_max = 65536\n"}, Want: `warn
want: the policy's values win
got: net.nf_conntrack_max=65536 at boot and at sysctl --system
evidence: /etc/sysctl.d/50-a.conf:1: net.netfilter.nf_conntrack_max = 65536; the policy wants 131072
evidence: kube-proxy: writes net.nf_conntrack_max at startup unless its conntrack settings are 0
remedy: remove "net.netfilter.nf_conntrack_max = 65536" from ROOT/etc/sysctl.d/50-a.conf:1`},
		{What: "a value below a bound, in a file after ours", Policy: "sysctl \"fs.inotify.max_user_watches\" { min = 524288 }",
			Tree: map[string]string{
				"/etc/sysctl.d/99-zz-nodegate.conf": "# fs.inotify.max_user_watches: at least 524288; only `nodegate apply` sets it\n",
				"/etc/sysctl.d/99-zzz-tracker.conf": "fs.inotify.max_user_watches=16184\n",
			}, Want: `
warn
want: the policy's values win
got: fs.inotify.max_user_watches=16184 at boot and at sysctl --system
evidence: /etc/sysctl.d/99-zzz-tracker.conf:1: fs.inotify.max_user_watches = 16184; the policy wants at least 524288
remedy: remove "fs.inotify.max_user_watches = 16184" from ROOT/etc/sysctl.d/99-zzz-tracker.conf:1`},
		{What: "a value within the bounds", Policy: "sysctl \"fs.inotify.max_user_watches\" { min = 524288 }",
			Tree: map[string]string{"/etc/sysctl.d/50-a.conf": "fs.inotify.max_user_watches = 1048576\n"}, Want: `
pass
want: the policy's values win
got: the policy's values win
evidence: /etc/sysctl.d/50-a.conf:1: fs.inotify.max_user_watches = 1048576`},
		{What: "a value above a bound", Policy: "sysctl \"net.netfilter.nf_conntrack_max\" { max = 1000000 }",
			Tree: map[string]string{"/etc/sysctl.d/50-a.conf": "net.nf_conntrack_max = 2000000\n"}, Want: `
warn
want: the policy's values win
got: net.netfilter.nf_conntrack_max=2000000 at boot and at sysctl --system
evidence: /etc/sysctl.d/50-a.conf:1: net.nf_conntrack_max = 2000000; the policy wants at most 1000000
evidence: kube-proxy: writes net.netfilter.nf_conntrack_max at startup unless its conntrack settings are 0
remedy: remove "net.nf_conntrack_max = 2000000" from ROOT/etc/sysctl.d/50-a.conf:1`},
		{What: "a value that is no choice", Policy: "sysctl \"net.ipv4.conf.all.rp_filter\" { one_of = [0, 2] }",
			Tree: map[string]string{"/etc/sysctl.d/50-a.conf": "net.ipv4.conf.all.rp_filter = 1\n"}, Want: `
warn
want: the policy's values win
got: net.ipv4.conf.all.rp_filter=1 at boot and at sysctl --system
evidence: /etc/sysctl.d/50-a.conf:1: net.ipv4.conf.all.rp_filter = 1; the policy wants one of 0, 2
remedy: remove "net.ipv4.conf.all.rp_filter = 1" from ROOT/etc/sysctl.d/50-a.conf:1`},
		{What: "/etc/sysctl.conf without a link wins only later", Policy: checkstest.ForwardPolicy, Tree: map[string]string{
			"/etc/sysctl.d/99-zz-nodegate.conf": own,
			"/etc/sysctl.conf":                  "net.ipv4.ip_forward=0",
		}, Want: `warn
want: the policy's values win
got: net.ipv4.ip_forward=0 at sysctl --system
evidence: /etc/sysctl.conf:1: net.ipv4.ip_forward = 0; the policy wants 1, as in /etc/sysctl.d/99-zz-nodegate.conf:2
evidence: /etc/sysctl.d/99-zz-nodegate.conf:2: net.ipv4.ip_forward = 1
remedy: remove "net.ipv4.ip_forward = 0" from ROOT/etc/sysctl.conf:1`},
		{What: "a glob loses against our own line, a masked file and a directory are not read", Policy: "sysctl \"net.ipv4.conf.all.rp_filter\" { value = 0 }\n",
			Tree: map[string]string{
				"/usr/lib/sysctl.d/99-zzz-vendor.conf": "net.ipv4.conf.*.rp_filter = 2\n",
				"/usr/lib/sysctl.d/99-zzzz.conf":       "net.ipv4.conf.all.rp_filter = 1\n",
				"/etc/sysctl.d/99-zzzz.conf":           "-> /dev/null",
				"/etc/sysctl.d/99-zzzzz.conf/":         "", // as a runtime creates for a missing hostPath
				"/etc/sysctl.d/99-zz-nodegate.conf":    "net.ipv4.conf.all.rp_filter = 0\n",
			}, Want: `pass
want: the policy's values win
got: the policy's values win
evidence: /etc/sysctl.d/99-zz-nodegate.conf:1: net.ipv4.conf.all.rp_filter = 0`},
		{What: "a glob wins if no file names the parameter", Policy: "sysctl \"net.ipv4.conf.all.rp_filter\" { value = 0 }\n",
			Tree: map[string]string{
				"/usr/lib/sysctl.d/50-default.conf": "net.ipv4.conf.*.rp_filter = 2\n",
			}, Want: `warn
want: the policy's values win
got: net.ipv4.conf.all.rp_filter=2 at boot and at sysctl --system
evidence: /usr/lib/sysctl.d/50-default.conf:1: net.ipv4.conf.*.rp_filter = 2; the policy wants 0
remedy: remove "net.ipv4.conf.*.rp_filter = 2" from ROOT/usr/lib/sysctl.d/50-default.conf:1`},
		{What: "a parameter that install leaves to apply", Policy: checkstest.ForwardPolicy,
			Tree: map[string]string{
				"/usr/lib/sysctl.d/50-default.conf": "net.ipv4.ip_forward = 0\n",
				"/etc/sysctl.d/99-zz-nodegate.conf": "# net.ipv4.ip_forward: 1; only `nodegate apply` sets it\n",
			}, Want: `pass
want: the policy's values win
got: the policy's values win
evidence: /usr/lib/sysctl.d/50-default.conf:1: net.ipv4.ip_forward = 0; the policy wants 1 depending on a fact of this node; ` + "`nodegate apply`" + ` sets it later`},
		{What: "a policy of modules", Policy: "module \"br_netfilter\" {}\n",
			Tree: map[string]string{"/etc/hostname": "n"},
			Want: `
skipped
skipped: the policy has no sysctl`},
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
	const applies = "evidence: tuned.service: applies its profile's parameters at every start (node)"
	const wins = "pass\nwant: the policy's values win\ngot: the policy's values win"
	off := tuned("net.ipv4.ip_forward=0\n", "", "")
	delete(off, "/etc/systemd/system/multi-user.target.wants/tuned.service")
	checkstest.RunOne(t, "sysctl.who-wins", checks.Image, []checkstest.Case{
		{What: "the included profile sets another value", Policy: checkstest.ForwardPolicy,
			Tree: tuned("net.ipv4.ip_forward=0\n", "", ""), Want: `warn
want: the policy's values win
got: net.ipv4.ip_forward=0 by TuneD
evidence: /usr/lib/tuned/base/tuned.conf:2: TuneD writes net.ipv4.ip_forward = 0; the policy wants 1
evidence: tuned.service: applies its profile's parameters at every start (node)
remedy: remove it from ROOT/usr/lib/tuned/base/tuned.conf:2, or add "net.ipv4.ip_forward = 1" to a file in ROOT/etc/sysctl.d, which TuneD applies after its profile unless reapply_sysctl is 0`},
		{What: "TuneD applies sysctl.d after it", Policy: checkstest.ForwardPolicy,
			Tree: tuned("net.ipv4.ip_forward=0\n", "", "net.ipv4.ip_forward = 1\n"),
			Want: wins + "\nevidence: /etc/sysctl.d/50-own.conf:1: net.ipv4.ip_forward = 1\n" + applies},
		{What: "TuneD does not apply sysctl.d after it", Policy: checkstest.ForwardPolicy,
			Tree: tuned("net.ipv4.ip_forward=0\n", "reapply_sysctl=0\n", "net.ipv4.ip_forward = 1\n"), Want: `
warn
want: the policy's values win
got: net.ipv4.ip_forward=0 by TuneD
evidence: /usr/lib/tuned/base/tuned.conf:2: TuneD writes net.ipv4.ip_forward = 0; the policy wants 1
evidence: /etc/sysctl.d/50-own.conf:1: net.ipv4.ip_forward = 1
evidence: tuned.service: applies its profile's parameters at every start (node)
remedy: remove it from ROOT/usr/lib/tuned/base/tuned.conf:2, or add "net.ipv4.ip_forward = 1" to a file in ROOT/etc/sysctl.d, which TuneD applies after its profile unless reapply_sysctl is 0`},
		{What: "the profile only raises the value, to less", Policy: "sysctl \"net.core.somaxconn\" { value = 4096 }\n", Tree: tuned("net.core.somaxconn=>2048\n", "", ""),
			Want: wins + "\n" + applies},
		{What: "the profile raises the value above the policy's", Policy: "sysctl \"net.core.somaxconn\" { value = 1024 }\n",
			Tree: tuned("net.core.somaxconn=>2048\n", "", ""), Want: `warn
want: the policy's values win
got: net.core.somaxconn=>2048 by TuneD
evidence: /usr/lib/tuned/base/tuned.conf:2: TuneD writes net.core.somaxconn = >2048; the policy wants 1024
evidence: tuned.service: applies its profile's parameters at every start (node)
remedy: remove it from ROOT/usr/lib/tuned/base/tuned.conf:2, or add "net.core.somaxconn = 1024" to a file in ROOT/etc/sysctl.d, which TuneD applies after its profile unless reapply_sysctl is 0`},
		{What: "only on some machines", Policy: checkstest.ForwardPolicy, Tree: tuned("net.ipv4.ip_forward=0\nuname_regex=aarch64\n", "", ""),
			Want: wins + "\nevidence: /usr/lib/tuned/base/tuned.conf:2: TuneD writes net.ipv4.ip_forward = 0; the policy wants 1; this " +
				"depends on uname_regex=aarch64\n" + applies},
		{What: "OpenShift's profile includes one that a function names", Policy: checkstest.ForwardPolicy,
			Tree: tuned("net.ipv4.ip_forward=0\n[main]\ninclude=-provider-${f:exec:cat:/provider}\n", "", ""), Want: `warn
want: the policy's values win
got: net.ipv4.ip_forward=0 by TuneD
evidence: /usr/lib/tuned/base/tuned.conf:2: TuneD writes net.ipv4.ip_forward = 0; the policy wants 1
evidence: tuned.service: applies its profile's parameters at every start (node)
evidence: other writers: unknown: files alone do not show which profile include=provider-${f:exec:cat:/provider} names
remedy: remove it from ROOT/usr/lib/tuned/base/tuned.conf:2, or add "net.ipv4.ip_forward = 1" to a file in ROOT/etc/sysctl.d, which TuneD applies after its profile unless reapply_sysctl is 0`},
		{What: "TuneD is off", Policy: checkstest.ForwardPolicy, Tree: off, Want: wins},
	})
}

func TestWhoWinsNamesWriters(t *testing.T) {
	m := checkstest.Node(map[string]string{
		"/etc/sysctl.d/99-zz-nodegate.conf":                "net.ipv4.ip_forward = 1\nkernel.panic = 5\n",
		"/var/lib/kubelet/config.yaml":                     "kind: KubeletConfiguration\n",
		"/etc/tuned/active_profile":                        "throughput-performance\n",
		"/usr/lib/tuned/throughput-performance/tuned.conf": "[sysctl]\nvm.swappiness=10\n",
	}, nil)
	m.Units = map[string][2]string{"tuned.service": {"inactive", "enabled"}}
	p := checkstest.Load(t, "check \"sysctl.who-wins\" {}\n"+checkstest.ForwardPolicy+`
		sysctl "kernel.panic" { value = 5 }
		sysctl "net.netfilter.nf_conntrack_max" { value = 131072 }`)
	r := checks.Inspect(t.Context(), m.Host(), checks.Run, catalog.For(p, checks.Run)).Results
	got := ""
	for _, e := range r[len(r)-1].State.Evidence {
		got += e.Source + ": " + e.Text + "\n"
	}
	checkstest.Equal(t, "evidence", `
/etc/sysctl.d/99-zz-nodegate.conf:1: net.ipv4.ip_forward = 1
/etc/sysctl.d/99-zz-nodegate.conf:2: kernel.panic = 5
kubelet: writes kernel.panic = 10 at startup because protectKernelDefaults is off
kube-proxy: writes net.netfilter.nf_conntrack_max at startup unless its conntrack settings are 0
tuned.service: applies its profile's parameters at every start (throughput-performance)`, got)
}
