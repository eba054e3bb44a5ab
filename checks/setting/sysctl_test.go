package setting_test

import (
	"strings"
	"syscall"
	"testing"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/checks/checkstest"
	"nodegate/internal/host/hosttest"
)

func TestSysctlAnswers(t *testing.T) {
	m := &hosttest.Machine{
		Files: map[string]string{},
		Refuse: map[string]error{
			"r /proc/sys/net/ipv4/route/flush":         syscall.EACCES,
			"/proc/sys/net/netfilter/nf_conntrack_max": syscall.EPERM,
			"/proc/sys/vm/swappiness":                  syscall.EROFS,
		},
		Clamp: map[string]string{"/proc/sys/net/core/rmem_max": "2304", "/proc/sys/kernel/panic": "7"},
	}
	m.Sysctl("net/ipv4/route/flush", "")
	m.Sysctl("net/netfilter/nf_conntrack_max", "1024")
	m.Files["/sys/module/nf_conntrack/initstate"] = "live\n"
	m.Sysctl("net/core/rmem_max", "2304")
	m.Sysctl("kernel/panic", "0")
	m.Sysctl("vm/swappiness", "60")
	m.Sysctl("net/ipv4/conf/eth0/rp_filter", "1")
	m.Sysctl("net/ipv4/conf/eth0.100/rp_filter", "0")
	p := checkstest.Load(t, `
		sysctl "net.ipv4.route.flush" { value = 1 }
		sysctl "net.netfilter.nf_conntrack_max" { value = 131072 }
		sysctl "net.core.rmem_max" { value = 1 }
		sysctl "kernel.panic" { value = 10 }
		sysctl "vm.swappiness" { value = 10 }
		sysctl "net.ipv4.conf.*.rp_filter" { value = 0 }
		sysctl "net.ipv4.conf.cni*.rp_filter" { value = 0 }
		sysctl "net/ipv4/conf/eth0.100/rp_filter" { value = 0 }
		sysctl "net.ipv4.no_such" { one_of = [1, 2] }`)
	r := checks.Apply(t.Context(), m.Host(), checks.Boot, catalog.For(p, checks.Boot), nil)
	got := checkstest.Print(r)
	checkstest.Equal(t, "report", `
pass module.nf_conntrack
unknown sysctl.net.ipv4.route.flush [net.ipv4.route.flush can be written but not read back: reading sysctl: open /proc/sys/net/ipv4/route/flush: permission denied]
fail sysctl.net.netfilter.nf_conntrack_max: want 131072, got 1024 [net.netfilter.nf_conntrack_max is read-only here: outside the initial network namespace, or without privilege: writing "131072" to sysctl: write /proc/sys/net/netfilter/nf_conntrack_max: operation not permitted]
fail sysctl.net.core.rmem_max: want 1, got 2304 [wrote net.core.rmem_max=1; the kernel stores 2304 instead]
fail sysctl.kernel.panic: want 10, got 7 [wrote kernel.panic=10; the kernel stores 7 instead]
fail sysctl.vm.swappiness: want 10, got 60 [vm.swappiness is read-only here: outside the initial network namespace, or without privilege: writing "10" to sysctl: write /proc/sys/vm/swappiness: read-only file system]
pass sysctl.net.ipv4.conf.*.rp_filter: net.ipv4.conf.eth0.rp_filter is 1 -> 0
skipped sysctl.net.ipv4.conf.cni*.rp_filter: no parameter matches net.ipv4.conf.cni*.rp_filter yet
pass sysctl.net.ipv4.conf.eth0/100.rp_filter
fail sysctl.net.ipv4.no_such: want one of 1, 2, got no such parameter
fail`, got)
	for _, res := range r.Results {
		if res.Differs() && strings.Contains(res.State.Remedy, "nodegate apply") {
			t.Errorf("%s: apply failed, but the remedy recommends it: %s", res.Name, res.State.Remedy)
		}
	}
}
