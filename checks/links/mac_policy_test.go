package links_test

import (
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
)

func TestMACAddressPolicy(t *testing.T) {
	const lib252, lib241 = "/usr/lib/x86_64-linux-gnu/systemd/libsystemd-shared-252.so", "/lib/systemd/libsystemd-shared-241.so"
	const others = "[Match]\nOriginalName=flannel.1 vxlan.calico veth* cali*\n[Link]\nMACAddressPolicy=none\n"
	checkstest.RunOne(t, "link.mac-address-policy", checks.Image, []checkstest.Case{
		{What: "the default of systemd 242", Tree: map[string]string{"/usr/lib/systemd/network/99-default.link": checkstest.DefaultLink,
			lib252: ""}, Want: `warn
want: no persistent MAC address on CNI links
got: persistent for flannel.1 vxlan.calico veth* cali* eni*
evidence: /usr/lib/systemd/network/99-default.link:6: MACAddressPolicy=persistent
evidence: /usr/lib/x86_64-linux-gnu/systemd/libsystemd-shared-252.so: systemd 252
remedy: create /etc/systemd/network/10-cni.link with [Match] OriginalName=flannel.1 vxlan.calico veth* cali* eni* and [Link] MACAddressPolicy=none`},
		{What: "a .link file for flannel only", Tree: map[string]string{
			"/usr/lib/systemd/network/99-default.link": checkstest.DefaultLink, lib252: "",
			"/etc/systemd/network/10-flannel.link": "[Match]\nOriginalName=flannel*\n[Link]\nMACAddressPolicy=none\n",
		}, Want: `warn
want: no persistent MAC address on CNI links
got: persistent for vxlan.calico veth* cali* eni*
evidence: /usr/lib/systemd/network/99-default.link:6: MACAddressPolicy=persistent
evidence: /usr/lib/x86_64-linux-gnu/systemd/libsystemd-shared-252.so: systemd 252
remedy: create /etc/systemd/network/10-cni.link with [Match] OriginalName=vxlan.calico veth* cali* eni* and [Link] MACAddressPolicy=none`},
		{What: "a drop-in for the default", Tree: map[string]string{
			"/usr/lib/systemd/network/99-default.link": checkstest.DefaultLink, lib252: "",
			"/etc/systemd/network/99-default.link.d/no.conf": "[Link]\nMACAddressPolicy=none\n",
		}, Want: "pass\nwant: no persistent MAC address on CNI links\ngot: no persistent MAC address on CNI links"},
		{What: "a .link file for every other CNI", Tree: map[string]string{
			"/usr/lib/systemd/network/99-default.link": checkstest.DefaultLink, lib252: "", "/etc/systemd/network/10-cni.link": others,
		}, Want: "pass\nwant: no persistent MAC address on CNI links\ngot: no persistent MAC address on CNI links"},
		{What: "the same, for the Amazon VPC CNI", Policy: "use \"aws-vpc-cni\" {}\n", Tree: map[string]string{
			"/usr/lib/systemd/network/99-default.link": checkstest.DefaultLink, lib252: "", "/etc/systemd/network/10-cni.link": others,
		}, Want: `warn
want: no persistent MAC address on CNI links
got: persistent for eni*
evidence: /usr/lib/systemd/network/99-default.link:6: MACAddressPolicy=persistent
evidence: /usr/lib/x86_64-linux-gnu/systemd/libsystemd-shared-252.so: systemd 252
remedy: create /etc/systemd/network/10-cni.link with [Match] OriginalName=eni* and [Link] MACAddressPolicy=none`},
		{What: "before systemd 242", Tree: map[string]string{"/lib/systemd/network/99-default.link": checkstest.DefaultLink,
			lib241: ""}, Want: `pass
want: no persistent MAC address on CNI links
got: no persistent MAC address on CNI links
evidence: /lib/systemd/network/99-default.link:6: MACAddressPolicy=persistent
evidence: /lib/systemd/libsystemd-shared-241.so: systemd 241`},
		{What: "a condition on the machine", Tree: map[string]string{
			"/usr/lib/systemd/network/99-default.link": checkstest.DefaultLink, lib252: "",
			"/etc/systemd/network/10-vm.link": "[Match]\nVirtualization=vm\n[Link]\nMACAddressPolicy=none\n",
		}, Want: "unknown\nerror: checking MACAddressPolicy of flannel.1: /etc/systemd/network/10-vm.link:2: unknown whether Virtualization=vm matches " +
			"on the node"},
		{What: "no udev", Tree: map[string]string{"/etc/hostname": "n"}, Want: `
skipped
skipped: no .link files found`},
	})
}
