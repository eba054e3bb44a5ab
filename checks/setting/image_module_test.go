package setting_test

import (
	"strings"
	"testing"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/checks/checkstest"
)

func TestModuleInImage(t *testing.T) {
	const k1, k2 = "/lib/modules/6.1.0-13-amd64/", "/lib/modules/6.1.0-18-amd64/"
	const dep = "kernel/net/bridge/br_netfilter.ko.xz: kernel/net/bridge/bridge.ko.xz " +
		"kernel/net/802/stp.ko.xz\nkernel/net/bridge/bridge.ko.xz: kernel/net/802/stp.ko.xz\nkernel/net/802/stp.ko.xz:\n"
	// tree returns a good image with some files changed; "" removes a file.
	tree := func(changes ...string) map[string]string {
		files := map[string]string{
			"/etc/os-release":                           "ID=debian\n",
			k1 + "modules.dep":                          dep,
			k1 + "kernel/net/bridge/br_netfilter.ko.xz": "x", k1 + "kernel/net/bridge/bridge.ko.xz": "x", k1 + "kernel/net/802/stp.ko.xz": "x",
			k2 + "modules.dep":     "",
			k2 + "modules.builtin": "kernel/net/bridge/br_netfilter.ko\n",
		}
		for i := 0; i < len(changes); i += 2 {
			if changes[i+1] == "" {
				delete(files, changes[i])
			} else {
				files[changes[i]] = changes[i+1]
			}
		}
		return files
	}
	for _, c := range []struct {
		name string
		tree map[string]string
		want string
	}{
		{"loadable in one kernel, built into the other", tree(), `pass
want: in every kernel
got: in every kernel
evidence: /lib/modules/6.1.0-13-amd64: loadable
evidence: /lib/modules/6.1.0-18-amd64: built in`},
		{"not in one kernel", tree(k2+"modules.builtin", ""), `fail
want: in every kernel
got: not in 6.1.0-18-amd64
evidence: /lib/modules/6.1.0-13-amd64: loadable
evidence: /lib/modules/6.1.0-18-amd64: not installed
remedy: install linux-image-6.1.0-18-amd64, which contains br_netfilter, or remove the kernel`},
		{"Rocky Linux 10 without kernel-modules-extra", tree(k2+"modules.builtin", "", "/etc/os-release",
			"ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n"), `fail
want: in every kernel
got: not in 6.1.0-18-amd64
evidence: /lib/modules/6.1.0-13-amd64: loadable
evidence: /lib/modules/6.1.0-18-amd64: not installed
remedy: install kernel-modules-extra-6.1.0-18-amd64, which contains br_netfilter, or remove the kernel`},
		{"Ubuntu's minimal kernel", tree(k2+"modules.builtin", "", "/etc/os-release", "ID=ubuntu\nID_LIKE=debian\n"), `fail
want: in every kernel
got: not in 6.1.0-18-amd64
evidence: /lib/modules/6.1.0-13-amd64: loadable
evidence: /lib/modules/6.1.0-18-amd64: not installed
remedy: install linux-modules-6.1.0-18-amd64 and linux-modules-extra-6.1.0-18-amd64, which contains br_netfilter, or remove the kernel`},
		{"a dependency's file is missing", tree(k1+"kernel/net/802/stp.ko.xz", ""), `fail
want: in every kernel
got: file missing in 6.1.0-13-amd64
evidence: /lib/modules/6.1.0-13-amd64/kernel/net/802/stp.ko.xz: in modules.dep, but the file does not exist
evidence: /lib/modules/6.1.0-18-amd64: built in
remedy: install linux-image-6.1.0-13-amd64 again, or run ` + "`depmod --basedir ROOT 6.1.0-13-amd64`"},
		{"the rest of a removed kernel", tree(k2+"modules.builtin", "", k2+"modules.dep", "", k2+"updates/dkms/x.ko", "x"), `fail
want: in every kernel
got: no modules.dep in 6.1.0-18-amd64
evidence: /lib/modules/6.1.0-13-amd64: loadable
evidence: /lib/modules/6.1.0-18-amd64/modules.dep: missing
remedy: run ` + "`depmod --basedir ROOT 6.1.0-18-amd64`" + `, or remove ROOT/lib/modules/6.1.0-18-amd64 if that kernel is gone`},
		{"a container", map[string]string{"/etc/os-release": "ID=debian\n"},
			"skipped\nskipped: no kernel and no boot loader here: a container or WSL2, which use the kernel of their host"},
		{"no kernel", map[string]string{"/boot/grub/grub.cfg": "\n"}, `fail
want: in every kernel
got: no kernel in the image
remedy: install a kernel with its modules below /lib/modules`},
		{"a dependency disabled as CIS recommends", tree("/etc/modprobe.d/cis.conf", "# CIS 3.2\ninstall stp /bin/false\nblacklist stp\n"), `fail
want: in every kernel
got: disabled in /etc/modprobe.d/cis.conf:2
evidence: /etc/modprobe.d/cis.conf:2: install stp /bin/false
evidence: /lib/modules/6.1.0-18-amd64: built in
remedy: remove "install stp /bin/false" from /etc/modprobe.d/cis.conf:2`},
		{"blacklisted is not disabled", tree("/etc/modprobe.d/b.conf", "blacklist br-netfilter\n"), `
pass
want: in every kernel
got: in every kernel
evidence: /lib/modules/6.1.0-13-amd64: loadable
evidence: /etc/modprobe.d/b.conf:1: blacklisted: systemd-modules-load skips it, nodegate-apply still loads it by name
evidence: /lib/modules/6.1.0-18-amd64: built in`},
		{"an install line that loads it", tree("/etc/modprobe.d/b.conf",
			"install br_netfilter /sbin/modprobe --ignore-install br_netfilter\n"), `pass
want: in every kernel
got: in every kernel
evidence: /lib/modules/6.1.0-13-amd64: loadable
evidence: /lib/modules/6.1.0-18-amd64: built in`},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := checkstest.Load(t, `module "br_netfilter" {}`)
			h := checkstest.Tree(t, c.tree)
			r := checks.Inspect(t.Context(), h, checks.Image, catalog.For(p, checks.Image))
			checkstest.Equal(t, r.Results[0].Name, c.want, strings.ReplaceAll(checkstest.Text(r.Results[0]), h.Root, "ROOT"))
		})
	}
}
