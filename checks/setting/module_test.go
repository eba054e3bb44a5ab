package setting_test

import (
	"strings"
	"testing"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/checks/checkstest"
	"nodegate/internal/host/hosttest"
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
