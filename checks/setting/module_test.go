package setting_test

import (
	"fmt"
	"strings"
	"testing"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/checks/checkstest"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/verdict"
)

func TestModuleAnswers(t *testing.T) {
	m := &hosttest.Machine{Files: map[string]string{
		"/lib/modules/6.1.0/modules.builtin":           "kernel/fs/overlayfs/overlay.ko\n",
		"/lib/modules/6.1.0/modules.dep":               "kernel/net/sched/sch_fq.ko: kernel/a.ko\n",
		"/sys/module/nf_conntrack/initstate":           "live\n",
		"/sys/module/slow/initstate":                   "coming\n",
		"/sys/module/vxlan/parameters/udp_port":        "0\n",
		"/proc/sys/net/bridge/bridge-nf-call-iptables": "1\n", // built in, without /sys/module
	}}
	p := checkstest.Load(t, `
		module "nf_conntrack" {}
		module "overlay" {}
		module "vxlan" {}
		module "br_netfilter" {}
		module "sch-fq" {}
		module "slow" {}
		module "ip_vs" { severity = "warn" }`)
	r := checks.Inspect(t.Context(), m.Host(), checks.Boot, catalog.For(p, checks.Boot))
	checkstest.Equal(t, "report", `
pass module.nf_conntrack
pass module.overlay
pass module.vxlan
pass module.br_netfilter
fail module.sch_fq: want loaded, got not loaded
unknown module.slow [module slow is "coming": the kernel has not finished loading it]
warn module.ip_vs: want loaded, got not installed
fail`, checkstest.Print(r))
	if got := r.Results[6].State.Remedy; !strings.Contains(got, "kernel-modules-extra") {
		t.Errorf("remedy of a missing module: %q", got)
	}
	delete(m.Files, "/lib/modules/6.1.0/modules.builtin")
	delete(m.Files, "/lib/modules/6.1.0/modules.dep")
	r = checks.Inspect(t.Context(), m.Host(), checks.Boot, catalog.For(p, checks.Boot))
	if got := r.Results[6].State.Remedy; !strings.Contains(got, "running kernel's modules are not installed") {
		t.Errorf("remedy without a module directory: %q", got)
	}
}

// TestForbiddenModule: a line of modprobe.d that keeps a module, or one that it needs, from loading is named, and no change is promised.
func TestForbiddenModule(t *testing.T) {
	m := &hosttest.Machine{Files: map[string]string{"/etc/modprobe.d/x.conf": "\ninstall bridge /bin/false\n"},
		Modules: map[string]map[string]string{"br_netfilter": {"net/bridge/bridge-nf-call-iptables": "0"}}}
	h := checkstest.WithModuleIndex(m)
	m.Files["/lib/modules/6.1.0/modules.dep"] = "kernel/net/bridge/br_netfilter.ko: kernel/net/bridge/bridge.ko\n"
	p := checkstest.Load(t, "module \"br_netfilter\" {}\nsysctl \"net.bridge.bridge-nf-call-iptables\" { value = 1 }")
	r := checks.Apply(t.Context(), h, checks.Boot, catalog.For(p, checks.Boot), nil)
	checkstest.Equal(t, "report", `
fail module.br_netfilter: want loaded, got disabled in /etc/modprobe.d/x.conf:2
fail sysctl.net.bridge.bridge-nf-call-iptables: want 1, got no such parameter (because module.br_netfilter)
fail`, checkstest.Print(r))
	for _, res := range r.Results {
		if len(res.State.Changes) > 0 ||
			!strings.HasPrefix(res.State.Remedy, `remove "install bridge /bin/false" from /etc/modprobe.d/x.conf:2, then run `+"`modprobe br_netfilter`") {
			t.Errorf("%s: %d changes, %s", res.Name, len(res.State.Changes), res.State.Remedy)
		}
	}
	checkstest.Obey(t, h, m, r.Results[0].State.Remedy)
	if r := checks.Apply(t.Context(), h, checks.Boot, catalog.For(p, checks.Boot), nil); r.Verdict() != verdict.Pass {
		t.Errorf("after the remedy:\n%s", checkstest.Print(r))
	}
}

// TestParameterOfModule: a parameter belongs to the module of the policy that brings it, itself or by a module that it needs: the plan
// names the module, and one apply does both.
func TestParameterOfModule(t *testing.T) {
	for _, c := range []struct{ module, key, path string }{
		{"sunrpc", "sunrpc.tcp_slot_table_entries", "sunrpc/tcp_slot_table_entries"},
		{"mpls_router", "net.mpls.platform_labels", "net/mpls/platform_labels"},
		{"sctp", "net.sctp.auth_enable", "net/sctp/auth_enable"},
		{"raid456", "dev.raid.speed_limit_max", "dev/raid/speed_limit_max"},
		{"lockd", "fs.nfs.nlm_tcpport", "fs/nfs/nlm_tcpport"},
		{"nfs", "fs.nfs.nlm_*port", "fs/nfs/nlm_tcpport"},
		{"br_netfilter", "net.bridge.bridge-nf-call-iptables", "net/bridge/bridge-nf-call-iptables"},
	} {
		m := &hosttest.Machine{Files: map[string]string{}, Modules: map[string]map[string]string{c.module: {c.path: "0"}}}
		h := checkstest.WithModuleIndex(m)
		list := catalog.For(checkstest.Load(t, fmt.Sprintf("module %q {}\nsysctl %q { value = 16 }", c.module, c.key)), checks.Boot)
		before := checks.Inspect(t.Context(), h, checks.Boot, list)
		if cause := before.Results[1].State.Cause; cause != "module."+c.module {
			t.Errorf("%s: after %q, want module.%s", c.key, cause, c.module)
		}
		if r := checks.Apply(t.Context(), h, checks.Boot, list, nil); r.Verdict() != verdict.Pass {
			t.Errorf("%s: %s", c.key, checkstest.Print(r))
		}
	}
}
