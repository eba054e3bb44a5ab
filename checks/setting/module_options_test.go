package setting_test

import (
	"io/fs"
	"strings"
	"testing"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/checks/checkstest"
	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
)

const moduleOptions = `
	module "nf_conntrack" { options = { hashsize = 65536 } }
	module "nvme_core" { options = { multipath = false } }
	module "zswap" { options = { enabled = true } }
	module "ip_vs" { options = { conn_tab_bits = 20 } }
	module "ena" { options = { no_such = 1 } }
	module "dccp" { absent = true }
	module "sctp" { absent = true }
	module "rds" { absent = true }
	module "tipc" { absent = true }
	module "kvm" { absent = true }`

func TestModuleOptions(t *testing.T) {
	m := &hosttest.Machine{
		Modules: map[string]map[string]string{"ip_vs": {}},
		Files: map[string]string{
			"/lib/modules/6.1.0/modules.dep":               "kernel/ip_vs.ko:\nkernel/sctp.ko:\nkernel/rds.ko:\n",
			"/sys/module/nf_conntrack/initstate":           "live\n",
			"/sys/module/nf_conntrack/parameters/hashsize": "16384\n",
			"/sys/module/nvme_core/initstate":              "live\n",
			"/sys/module/nvme_core/parameters/multipath":   "Y\n",
			"/sys/module/zswap/parameters/enabled":         "N\n",
			"/sys/module/ena/initstate":                    "live\n",
			"/sys/module/tipc/initstate":                   "live\n",
			"/sys/module/kvm/parameters/x":                 "1\n",
			"/etc/modprobe.d/a.conf":                       "blacklist rds\ninstall sctp /bin/false\n",
		},
		Modes: map[string]fs.FileMode{"/sys/module/nvme_core/parameters/multipath": 0o444, "/sys/module/zswap/parameters/enabled": 0o444},
	}
	p := checkstest.Load(t, moduleOptions)
	list := catalog.For(p, checks.Boot)
	r := checks.Apply(t.Context(), m.Host(), checks.Boot, list, nil)
	checkstest.Equal(t, "apply", `
pass module.nf_conntrack: loaded with hashsize=16384 -> loaded with hashsize=65536
fail module.nvme_core: want loaded with multipath=N, got loaded with multipath=Y
fail module.zswap: want loaded with enabled=Y, got loaded with enabled=N
pass module.ip_vs: not loaded -> loaded with conn_tab_bits=20
unknown module.ena [ena does not show its parameter no_such below /sys: check the spelling with `+"`modinfo -p ena`"+`; a parameter with mode 0 cannot be required]
pass module.dccp
pass module.sctp
fail module.rds: want not loadable, got not loaded, but loadable
fail module.tipc: want not loadable, got loaded
fail module.kvm: want not loadable, got built in
fail`, checkstest.Print(r))
	checkstest.Equal(t, "changes", `
write /sys/module/nf_conntrack/parameters/hashsize 65536
modprobe ip_vs conn_tab_bits=20`, strings.Join(m.Log, "\n"))
	for name, want := range map[string]string{
		"module.nvme_core": "`nodegate install`, which writes modprobe.d, and reboot",
		"module.zswap":     "add zswap.enabled=Y to the kernel's command line",
		"module.rds":       "run `nodegate install`, which writes modprobe.d",
		"module.tipc":      "then `modprobe -r tipc`",
	} {
		for _, res := range r.Results {
			assert.True(t, res.Name != name || strings.Contains(res.State.Remedy, want), "%s: %s", name, res.State.Remedy)
		}
	}
}

func TestModuleOptionsInImage(t *testing.T) {
	const dir = "/lib/modules/6.1.0/"
	m := &hosttest.Machine{Files: map[string]string{
		dir + "modules.dep":            "kernel/nf_conntrack.ko:\nkernel/nvme_core.ko:\nkernel/ip_vs.ko:\nkernel/sctp.ko:\nkernel/rds.ko:\n",
		dir + "modules.builtin":        "kernel/kvm.ko\nkernel/zswap.ko\nkernel/ena.ko\n",
		dir + "kernel/nf_conntrack.ko": "x", dir + "kernel/nvme_core.ko": "x", dir + "kernel/ip_vs.ko": "x",
		"/etc/modprobe.d/a.conf": "options nf_conntrack hashsize=1\noptions nvme-core multipath=Y\ninstall sctp /bin/false\n",
		"/etc/modprobe.d/z.conf": "options nf_conntrack hashsize=65536\n",
	}}
	h := m.Host()
	h.Root = "/mnt"
	r := checks.Inspect(t.Context(), h, checks.Image, catalog.For(checkstest.Load(t, moduleOptions), checks.Image))
	checkstest.Equal(t, "image", `
pass image.module.nf_conntrack
fail image.module.nvme_core: want in every kernel, got modprobe.d sets multipath=Y
pass image.module.zswap
fail image.module.ip_vs: want in every kernel, got modprobe.d does not set conn_tab_bits
pass image.module.ena
pass image.module.dccp
pass image.module.sctp
fail image.module.rds: want not loadable in any kernel, got loadable in 6.1.0
pass image.module.tipc
fail image.module.kvm: want not loadable in any kernel, got built in in 6.1.0
fail`, checkstest.Print(r))
}

// TestHiddenOption: an option that the module takes and never shows passes if modprobe.d has it, and is unknown otherwise: kubelet is not
// held for ever for what no program can read.
func TestHiddenOption(t *testing.T) {
	p := checkstest.Load(t, `module "bonding" { options = { max_bonds = 0 } }`)
	for modprobe, want := range map[string]string{
		"options bonding max_bonds=0\n": "\npass module.bonding\npass",
		"options bonding max_bonds=2\n": `
unknown module.bonding [bonding does not show its parameter max_bonds below /sys, and modprobe.d sets max_bonds=2: run ` +
			"`nodegate install`, which writes it there]\nunknown",
	} {
		m := &hosttest.Machine{Files: map[string]string{"/sys/module/bonding/initstate": "live\n", "/etc/modprobe.d/a.conf": modprobe}}
		r := checks.Inspect(t.Context(), m.Host(), checks.Boot, catalog.For(p, checks.Boot))
		checkstest.Equal(t, modprobe, want, checkstest.Print(r))
	}
}
