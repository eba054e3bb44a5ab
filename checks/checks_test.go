package checks_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/policy"
)

func load(t *testing.T, text string) *policy.Policy {
	t.Helper()
	p, diags := policy.Load([]policy.File{{Name: "test.hcl", Text: []byte(text)}}, policy.Options{Checks: checks.ProblemNames()})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	return p
}

// print is a report as lines that a test can compare with a literal.
func print(r checks.Report) string {
	var b strings.Builder
	for _, res := range r.Results {
		fmt.Fprintf(&b, "%s %s", res.Verdict, res.Name)
		switch {
		case res.Fixed:
			fmt.Fprintf(&b, ": %s -> %s", res.Was, res.State.Got)
		case res.Verdict == checks.Skip:
			fmt.Fprintf(&b, ": %s", res.State.Skip)
		case res.Verdict != checks.Pass && res.Verdict != checks.Unknown:
			fmt.Fprintf(&b, ": want %s, got %s", res.State.Want, res.State.Got)
		}
		if res.IsSymptom() {
			fmt.Fprintf(&b, " (because %s)", res.State.Cause)
		}
		if res.Err != nil {
			fmt.Fprintf(&b, " [%v]", res.Err)
		}
		b.WriteByte('\n')
	}
	return b.String() + r.Verdict().String() + "\n"
}

func equal(t *testing.T, what, want, got string) {
	t.Helper()
	if d := cmp.Diff(strings.TrimSpace(want), strings.TrimSpace(got)); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

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
	p := load(t, `
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
	list := checks.For(p, checks.Boot)

	before := m.String()
	equal(t, "inspection", `
fail module.overlay: want loaded, got not loaded
fail module.br_netfilter: want loaded, got not loaded
fail sysctl.net.bridge.bridge-nf-call-iptables: want 1, got no such parameter (because module.br_netfilter)
fail sysctl.net.ipv4.ip_forward: want 1, got 0
pass sysctl.net.ipv4.tcp_rmem
fail sysctl.fs.inotify.max_user_instances: want at least 512, got 128
fail link.vxlan: want tso=on tx-checksum-ip-generic=off mtu=1450 net.ipv4.conf.*.rp_filter=0, got flannel.1: tx-checksum-ip-generic=on, flannel.1: mtu=1500, flannel.1: net.ipv4.conf.flannel/1.rp_filter=2
fail`, print(checks.Inspect(t.Context(), withModuleIndex(m), checks.Boot, list)))
	if after := m.String(); after != before {
		t.Errorf("Inspect changed the machine:\n%s", cmp.Diff(before, after))
	}

	equal(t, "apply", `
pass module.overlay: not loaded -> loaded
pass module.br_netfilter: not loaded -> loaded
pass sysctl.net.bridge.bridge-nf-call-iptables: no such parameter -> 1
pass sysctl.net.ipv4.ip_forward: 0 -> 1
pass sysctl.net.ipv4.tcp_rmem
pass sysctl.fs.inotify.max_user_instances: 128 -> 512
pass link.vxlan: flannel.1: tx-checksum-ip-generic=on, flannel.1: mtu=1500, flannel.1: net.ipv4.conf.flannel/1.rp_filter=2 -> tso=on tx-checksum-ip-generic=off mtu=1450 net.ipv4.conf.*.rp_filter=0
pass`, print(checks.Apply(t.Context(), m.Host(), checks.Boot, list)))
	equal(t, "changes", `
modprobe overlay br_netfilter
write /proc/sys/net/bridge/bridge-nf-call-iptables 1
write /proc/sys/net/ipv4/ip_forward 1
write /proc/sys/fs/inotify/max_user_instances 512
ethtool -K flannel.1 tx-checksum-ip-generic false
ip link set flannel.1 mtu 1450
write /proc/sys/net/ipv4/conf/flannel.1/rp_filter 0`, sortedTail(m.Log))
	equal(t, "machine", `
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
	again := checks.Apply(t.Context(), m.Host(), checks.Boot, list)
	for _, r := range again.Results {
		if r.Fixed || r.Verdict != checks.Pass {
			t.Errorf("second apply: %s is %s, fixed %t", r.Name, r.Verdict, r.Fixed)
		}
	}
	if m.Log != nil {
		t.Errorf("second apply changed: %q", m.Log)
	}
}

// sortedTail puts the link's changes, which happen in one Fix, in a fixed order.
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

// withModuleIndex gives the machine the files that say what could be loaded.
func withModuleIndex(m *hosttest.Machine) *host.Host {
	dep := ""
	for name := range m.Modules {
		dep += "kernel/net/" + strings.ReplaceAll(name, "_", "-") + ".ko.xz:\n"
	}
	m.Files["/lib/modules/6.1.0/modules.dep"] = dep
	return m.Host()
}

func TestModuleAnswers(t *testing.T) {
	m := &hosttest.Machine{Files: map[string]string{
		"/lib/modules/6.1.0/modules.builtin":           "kernel/fs/overlayfs/overlay.ko\n",
		"/lib/modules/6.1.0/modules.dep":               "kernel/net/sched/sch_fq.ko: kernel/a.ko\n",
		"/sys/module/nf_conntrack/initstate":           "live\n",
		"/sys/module/slow/initstate":                   "coming\n",
		"/sys/module/vxlan/parameters/udp_port":        "0\n",
		"/proc/sys/net/bridge/bridge-nf-call-iptables": "1\n", // built in, without /sys/module
	}}
	p := load(t, `
		module "nf_conntrack" {}
		module "overlay" {}
		module "vxlan" {}
		module "br_netfilter" {}
		module "sch-fq" {}
		module "slow" {}
		module "ip_vs" { severity = "warn" }`)
	r := checks.Inspect(t.Context(), m.Host(), checks.Boot, checks.For(p, checks.Boot))
	equal(t, "report", `
pass module.nf_conntrack
pass module.overlay
pass module.vxlan
pass module.br_netfilter
fail module.sch_fq: want loaded, got not loaded
unknown module.slow [module slow is "coming": the kernel has not finished loading it]
warn module.ip_vs: want loaded, got not installed
fail`, print(r))
	if got := r.Results[6].State.Remedy; !strings.Contains(got, "kernel-modules-extra") {
		t.Errorf("remedy of a missing module: %q", got)
	}
	delete(m.Files, "/lib/modules/6.1.0/modules.builtin")
	delete(m.Files, "/lib/modules/6.1.0/modules.dep")
	r = checks.Inspect(t.Context(), m.Host(), checks.Boot, checks.For(p, checks.Boot))
	if got := r.Results[6].State.Remedy; !strings.Contains(got, "running kernel's modules are not installed") {
		t.Errorf("remedy without a module directory: %q", got)
	}
}

func TestSysctlAnswers(t *testing.T) {
	m := &hosttest.Machine{
		Files: map[string]string{},
		Refuse: map[string]error{
			"r /proc/sys/net/ipv4/route/flush":         syscall.EACCES,
			"/proc/sys/net/netfilter/nf_conntrack_max": syscall.EPERM,
		},
		Clamp: map[string]string{"/proc/sys/net/core/rmem_max": "2304", "/proc/sys/kernel/panic": "7"},
	}
	m.Sysctl("net/ipv4/route/flush", "")
	m.Sysctl("net/netfilter/nf_conntrack_max", "1024")
	m.Files["/sys/module/nf_conntrack/initstate"] = "live\n"
	m.Sysctl("net/core/rmem_max", "2304")
	m.Sysctl("kernel/panic", "0")
	m.Sysctl("net/ipv4/conf/eth0/rp_filter", "1")
	m.Sysctl("net/ipv4/conf/eth0.100/rp_filter", "0")
	p := load(t, `
		sysctl "net.ipv4.route.flush" { value = 1 }
		sysctl "net.netfilter.nf_conntrack_max" { value = 131072 }
		sysctl "net.core.rmem_max" { value = 1 }
		sysctl "kernel.panic" { value = 10 }
		sysctl "net.ipv4.conf.*.rp_filter" { value = 0 }
		sysctl "net.ipv4.conf.cni*.rp_filter" { value = 0 }
		sysctl "net/ipv4/conf/eth0.100/rp_filter" { value = 0 }
		sysctl "net.ipv4.no_such" { one_of = [1, 2] }`)
	r := checks.Apply(t.Context(), m.Host(), checks.Boot, checks.For(p, checks.Boot))
	got := print(r)
	equal(t, "report", `
pass module.nf_conntrack
unknown sysctl.net.ipv4.route.flush [net.ipv4.route.flush can be written but not read back: reading sysctl: open /proc/sys/net/ipv4/route/flush: permission denied]
fail sysctl.net.netfilter.nf_conntrack_max: want 131072, got 1024 [net.netfilter.nf_conntrack_max is read-only here: outside the initial network namespace, or without privilege: writing "131072" to sysctl: write /proc/sys/net/netfilter/nf_conntrack_max: operation not permitted]
fail sysctl.net.core.rmem_max: want 1, got 2304 [wrote net.core.rmem_max=1; the kernel took it and kept 2304]
fail sysctl.kernel.panic: want 10, got 7 [wrote kernel.panic=10; the kernel made it 7]
pass sysctl.net.ipv4.conf.*.rp_filter: net.ipv4.conf.eth0.rp_filter is 1 -> 0
skip sysctl.net.ipv4.conf.cni*.rp_filter: nothing matches net.ipv4.conf.cni*.rp_filter yet
pass sysctl.net.ipv4.conf.eth0/100.rp_filter
fail sysctl.net.ipv4.no_such: want one of 1, 2, got no such parameter [reading sysctl: open /proc/sys/net/ipv4/no_such: no such file or directory]
fail`, got)
}

func TestUnknownNeverPasses(t *testing.T) {
	m := &hosttest.Machine{Files: map[string]string{}, Refuse: map[string]error{"r /proc/sys/kernel/panic": syscall.EIO}}
	p := load(t, `sysctl "kernel.panic" { value = 10 }`)
	r := checks.Inspect(t.Context(), m.Host(), checks.Boot, checks.For(p, checks.Boot))
	if r.Verdict() != checks.Unknown || !errors.Is(r.Results[0].Err, syscall.EIO) {
		t.Errorf("an unreadable parameter: %v, %v", r.Verdict(), r.Results[0].Err)
	}
	p = load(t, `sysctl "kernel.panic" {
		value = 10
		severity = "warn"
	}`)
	r = checks.Inspect(t.Context(), m.Host(), checks.Boot, checks.For(p, checks.Boot))
	if r.Verdict() != checks.Pass || r.Results[0].Verdict != checks.Unknown {
		t.Errorf("an unreadable parameter that only warns: report %v, result %v", r.Verdict(), r.Results[0].Verdict)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	m = &hosttest.Machine{Files: map[string]string{}}
	m.Sysctl("kernel/panic", "10")
	r = checks.Inspect(ended, m.Host(), checks.Boot, checks.For(load(t, `sysctl "kernel.panic" { value = 10 }`), checks.Boot))
	if r.Verdict() != checks.Unknown {
		t.Errorf("a check that was not run: %v", r.Verdict())
	}
}
