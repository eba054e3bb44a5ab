package checks_test

import (
	"strings"
	"testing"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

func with(m *hosttest.Machine, unit, active, file string) *hosttest.Machine {
	m.Units = map[string][2]string{unit: {active, file}}
	return m
}

func TestMACAddressPolicy(t *testing.T) {
	const lib252, lib241 = "/usr/lib/x86_64-linux-gnu/systemd/libsystemd-shared-252.so", "/lib/systemd/libsystemd-shared-241.so"
	judgeSettings(t, "link.mac-address-policy", checks.Image, []settingCase{
		{name: "the default of systemd 242", tree: map[string]string{"/usr/lib/systemd/network/99-default.link": defaultLink, lib252: ""}, want: `warn
want: no persistent MAC address on CNI links
got: persistent for flannel.1 vxlan.calico veth* cali*
evidence: /usr/lib/systemd/network/99-default.link:6: MACAddressPolicy=persistent
evidence: /usr/lib/x86_64-linux-gnu/systemd/libsystemd-shared-252.so: systemd 252
remedy: write to /etc/systemd/network/10-cni.link: [Match] OriginalName=flannel.1 vxlan.calico veth* cali* [Link] MACAddressPolicy=none`},
		{name: "only flannel is told", tree: map[string]string{
			"/usr/lib/systemd/network/99-default.link": defaultLink, lib252: "",
			"/etc/systemd/network/10-flannel.link": "[Match]\nOriginalName=flannel*\n[Link]\nMACAddressPolicy=none\n",
		}, want: `warn
want: no persistent MAC address on CNI links
got: persistent for vxlan.calico veth* cali*
evidence: /usr/lib/systemd/network/99-default.link:6: MACAddressPolicy=persistent
evidence: /usr/lib/x86_64-linux-gnu/systemd/libsystemd-shared-252.so: systemd 252
remedy: write to /etc/systemd/network/10-cni.link: [Match] OriginalName=vxlan.calico veth* cali* [Link] MACAddressPolicy=none`},
		{name: "a drop-in for the default", tree: map[string]string{
			"/usr/lib/systemd/network/99-default.link": defaultLink, lib252: "",
			"/etc/systemd/network/99-default.link.d/no.conf": "[Link]\nMACAddressPolicy=none\n",
		}, want: "pass\nwant: no persistent MAC address on CNI links\ngot: no persistent MAC address on CNI links"},
		{name: "before systemd 242", tree: map[string]string{"/lib/systemd/network/99-default.link": defaultLink, lib241: ""}, want: `pass
want: no persistent MAC address on CNI links
got: no persistent MAC address on CNI links
evidence: /lib/systemd/network/99-default.link:6: MACAddressPolicy=persistent
evidence: /lib/systemd/libsystemd-shared-241.so: systemd 241`},
		{name: "a condition on the machine", tree: map[string]string{
			"/usr/lib/systemd/network/99-default.link": defaultLink, lib252: "",
			"/etc/systemd/network/10-vm.link": "[Match]\nVirtualization=vm\n[Link]\nMACAddressPolicy=none\n",
		}, want: "unknown\nerror: MACAddressPolicy of flannel.1: /etc/systemd/network/10-vm.link:2: whether Virtualization=vm holds on the node is not known"},
		{name: "no udev", tree: map[string]string{"/etc/hostname": "n"}, want: "skip: no .link file is here"},
	})
}

func TestNetworkdForeignRoutes(t *testing.T) {
	files := func(version, conf string) map[string]string {
		return map[string]string{
			"/usr/lib/systemd/libsystemd-shared-" + version + ".so":                "",
			"/etc/systemd/networkd.conf":                                           "[Network]\n#ManageForeignRoutes=yes\n",
			"/usr/lib/systemd/networkd.conf.d/50-cni.conf":                         conf,
			"/etc/systemd/system/multi-user.target.wants/systemd-networkd.service": "-> /usr/lib/systemd/system/systemd-networkd.service",
		}
	}
	const both = "[Network]\nManageForeignRoutes=no\nManageForeignRoutingPolicyRules=no\n"
	masked := files("252", both)
	masked["/etc/systemd/networkd.conf.d/50-cni.conf"] = "-> /dev/null"
	judgeSettings(t, "networkd.foreign-routes", checks.Image, []settingCase{
		{name: "the default", tree: files("252", ""), want: `warn
want: ManageForeignRoutes=no ManageForeignRoutingPolicyRules=no
got: ManageForeignRoutes=yes ManageForeignRoutingPolicyRules=yes
evidence: /etc/systemd/system/multi-user.target.wants/systemd-networkd.service: enabled
evidence: /usr/lib/systemd/libsystemd-shared-252.so: systemd 252
remedy: write to /etc/systemd/networkd.conf.d/99-cni.conf: [Network] ManageForeignRoutes=no ManageForeignRoutingPolicyRules=no; then run: systemctl restart systemd-networkd`},
		{name: "told, in a drop-in", tree: files("252", both), want: `pass
want: ManageForeignRoutes=no ManageForeignRoutingPolicyRules=no
got: ManageForeignRoutes=no ManageForeignRoutingPolicyRules=no
evidence: /etc/systemd/system/multi-user.target.wants/systemd-networkd.service: enabled
evidence: /usr/lib/systemd/libsystemd-shared-252.so: systemd 252`},
		{name: "the drop-in is masked", tree: masked, want: `warn
want: ManageForeignRoutes=no ManageForeignRoutingPolicyRules=no
got: ManageForeignRoutes=yes ManageForeignRoutingPolicyRules=yes
evidence: /etc/systemd/system/multi-user.target.wants/systemd-networkd.service: enabled
evidence: /usr/lib/systemd/libsystemd-shared-252.so: systemd 252
remedy: write to /etc/systemd/networkd.conf.d/99-cni.conf: [Network] ManageForeignRoutes=no ManageForeignRoutingPolicyRules=no; then run: systemctl restart systemd-networkd`},
		{name: "256 has next hops too", tree: files("256", both), want: `warn
want: ManageForeignRoutes=no ManageForeignRoutingPolicyRules=no ManageForeignNextHops=no
got: ManageForeignNextHops=yes
evidence: /etc/systemd/system/multi-user.target.wants/systemd-networkd.service: enabled
evidence: /usr/lib/systemd/libsystemd-shared-256.so: systemd 256
remedy: write to /etc/systemd/networkd.conf.d/99-cni.conf: [Network] ManageForeignNextHops=no; then run: systemctl restart systemd-networkd`},
		{name: "247 flushes and may not know the setting", tree: files("247", "[Network]\nManageForeignRoutes=no\n"), want: `warn
want: ManageForeignRoutes=no ManageForeignRoutingPolicyRules=no
got: ManageForeignRoutingPolicyRules=yes
evidence: /etc/systemd/system/multi-user.target.wants/systemd-networkd.service: enabled
evidence: /usr/lib/systemd/libsystemd-shared-247.so: systemd 247
remedy: write to /etc/systemd/networkd.conf.d/99-cni.conf: [Network] ManageForeignRoutingPolicyRules=no; then run: systemctl restart systemd-networkd (systemd 247 knows ManageForeignRoutingPolicyRules only where the distribution backported it; 249 does)`},
		{name: "245 cannot be told", tree: files("245", both), want: "unknown\nerror: systemd 245 has no ManageForeignRoutes: cannot tell what networkd removes"},
		{name: "off", tree: map[string]string{"/etc/hostname": "n"}, want: "skip: systemd-networkd is off"},
	})
	live := with(node(files("252", ""), nil), "systemd-networkd.service", "active", "enabled")
	judgeSettings(t, "networkd.foreign-routes", checks.Run, []settingCase{
		{name: "a running node", node: live, want: `warn
want: ManageForeignRoutes=no ManageForeignRoutingPolicyRules=no
got: ManageForeignRoutes=yes ManageForeignRoutingPolicyRules=yes
evidence: systemd-networkd.service: active, enabled
evidence: /usr/lib/systemd/libsystemd-shared-252.so: systemd 252
remedy: write to /etc/systemd/networkd.conf.d/99-cni.conf: [Network] ManageForeignRoutes=no ManageForeignRoutingPolicyRules=no; then run: systemctl restart systemd-networkd`},
	})
}

// nmRules is shaped as the rules that NetworkManager brings.
const nmRules = `SUBSYSTEM!="net", GOTO="end"
ACTION!="add|change|move", GOTO="end"

# a comment
ATTR{address}=="00:50:56:*", ENV{INTERFACE}=="vmnet[0-9]*", ENV{NM_UNMANAGED}="1"
ENV{ID_NET_DRIVER}=="veth", ENV{INTERFACE}!="eth[0-9]*", ENV{NM_UNMANAGED}="1"
ENV{DEVTYPE}=="gadget", ENV{NM_UNMANAGED}="1"
LABEL="end"
`

func present(m *hosttest.Machine, links ...string) *hosttest.Machine {
	m.Links = map[string]*hosttest.Link{}
	for _, name := range links {
		m.Links[name] = &hosttest.Link{Kind: "vxlan"}
	}
	return m
}

func TestNetworkManagerLinks(t *testing.T) {
	nm := func(files map[string]string) *hosttest.Machine {
		return with(node(files, nil), "NetworkManager.service", "active", "enabled")
	}
	judgeSettings(t, "networkmanager.cni-links", checks.Run, []settingCase{
		{name: "nothing is said", node: nm(nil), want: `warn
want: CNI interfaces unmanaged
got: managed: flannel* cali* tunl* vxlan.calico
evidence: NetworkManager.service: active, enabled
remedy: write to /etc/NetworkManager/conf.d/99-cni.conf: [keyfile] unmanaged-devices+=interface-name:flannel*;interface-name:cali*;interface-name:tunl*;interface-name:vxlan.calico; then run: nmcli general reload`},
		{name: "Calico's file, and a main file before it", node: nm(map[string]string{
			"/etc/NetworkManager/NetworkManager.conf": "[main]\nplugins=keyfile\n[keyfile]\nunmanaged-devices=interface-name:flannel*\n",
			"/etc/NetworkManager/conf.d/calico.conf":  "[keyfile]\nunmanaged-devices=interface-name:cali*;interface-name:tunl*;interface-name:vxlan.calico\n",
		}), want: `warn
want: CNI interfaces unmanaged
got: managed: flannel*
evidence: NetworkManager.service: active, enabled
evidence: /etc/NetworkManager/NetworkManager.conf:4: unmanaged-devices=interface-name:flannel*
remedy: write to /etc/NetworkManager/conf.d/99-cni.conf: [keyfile] unmanaged-devices+=interface-name:flannel*; then run: nmcli general reload`},
		{name: "all of them", node: nm(map[string]string{
			"/usr/lib/NetworkManager/conf.d/10-rke2.conf": "[keyfile]\nunmanaged-devices=interface-name:flannel*;interface-name:cali*\n",
			"/etc/NetworkManager/conf.d/tunnels.conf":     "[keyfile]\nunmanaged-devices+=interface-name:tunl*,interface-name:=vxlan.calico\n",
		}), want: `pass
want: CNI interfaces unmanaged
got: CNI interfaces unmanaged
evidence: NetworkManager.service: active, enabled
evidence: /usr/lib/NetworkManager/conf.d/10-rke2.conf:2: unmanaged-devices=interface-name:flannel*;interface-name:cali*`},
		{name: "a device section", node: nm(map[string]string{
			"/etc/NetworkManager/conf.d/cni.conf": "[device-cni]\nmatch-device=interface-name:flannel*;interface-name:cali*;interface-name:tunl*;interface-name:vxlan.calico\nmanaged=0\n",
		}), want: `pass
want: CNI interfaces unmanaged
got: CNI interfaces unmanaged
evidence: NetworkManager.service: active, enabled
evidence: /etc/NetworkManager/conf.d/cni.conf:3: managed=0 for interface-name:flannel*;interface-name:cali*;interface-name:tunl*;interface-name:vxlan.calico`},
		{name: "NetworkManager's own udev rules leave veths alone", node: nm(map[string]string{"/usr/lib/udev/rules.d/85-nm-unmanaged.rules": nmRules}), want: `warn
want: CNI interfaces unmanaged
got: managed: flannel* tunl* vxlan.calico
evidence: NetworkManager.service: active, enabled
evidence: /usr/lib/udev/rules.d/85-nm-unmanaged.rules:6: NM_UNMANAGED=1 for cali*
remedy: write to /etc/NetworkManager/conf.d/99-cni.conf: [keyfile] unmanaged-devices+=interface-name:flannel*;interface-name:tunl*;interface-name:vxlan.calico; then run: nmcli general reload`},
		{name: "a udev rule for all of them", node: nm(map[string]string{
			"/usr/lib/udev/rules.d/85-nm-unmanaged.rules": nmRules,
			"/etc/udev/rules.d/90-cni.rules":              `SUBSYSTEM=="net", ACTION!="remove", KERNEL=="flannel*|tunl*|vxlan.calico", ENV{NM_UNMANAGED}="1"` + "\n",
		}), want: `pass
want: CNI interfaces unmanaged
got: CNI interfaces unmanaged
evidence: NetworkManager.service: active, enabled
evidence: /etc/udev/rules.d/90-cni.rules:1: NM_UNMANAGED=1 for flannel*`},
		{name: "a udev rule that depends on the machine", node: nm(map[string]string{
			"/etc/udev/rules.d/90-cni.rules": `SUBSYSTEM=="net", ATTR{address}=="02:*", ENV{NM_UNMANAGED}="1"` + "\n",
		}), want: "unknown\n" + strings.Join([]string{
			"error: /etc/udev/rules.d/90-cni.rules:1: whether this rule holds for flannel* is not known",
			"/etc/udev/rules.d/90-cni.rules:1: whether this rule holds for cali* is not known",
			"/etc/udev/rules.d/90-cni.rules:1: whether this rule holds for tunl* is not known",
			"/etc/udev/rules.d/90-cni.rules:1: whether this rule holds for vxlan.calico is not known"}, "\n")},
		{name: "what udev knows of links that are there", node: present(nm(map[string]string{
			"/etc/udev/rules.d/90-cni.rules":       `SUBSYSTEM=="net", ATTR{address}=="02:*", ENV{NM_UNMANAGED}="1"` + "\n",
			"/etc/NetworkManager/conf.d/rest.conf": "[keyfile]\nunmanaged-devices=interface-name:cali*;interface-name:tunl*\n",
			"/sys/class/net/flannel.1/ifindex":     "7\n", "/run/udev/data/n7": "I:100\nE:ID_NET_DRIVER=vxlan\nE:NM_UNMANAGED=1\n",
			"/sys/class/net/vxlan.calico/ifindex": "8\n", "/run/udev/data/n8": "I:100\nE:ID_NET_DRIVER=vxlan\n",
		}), "flannel.1", "vxlan.calico"), want: `warn
want: CNI interfaces unmanaged
got: managed: vxlan.calico
evidence: NetworkManager.service: active, enabled
evidence: /etc/NetworkManager/conf.d/rest.conf:2: unmanaged-devices=interface-name:cali*;interface-name:tunl*
remedy: write to /etc/NetworkManager/conf.d/99-cni.conf: [keyfile] unmanaged-devices+=interface-name:vxlan.calico; then run: nmcli general reload`},
		{name: "an exception", node: nm(map[string]string{
			"/etc/NetworkManager/conf.d/cni.conf": "[keyfile]\nunmanaged-devices=*;except:interface-name:tunl0\n",
		}), want: `warn
want: CNI interfaces unmanaged
got: managed: tunl*
evidence: NetworkManager.service: active, enabled
evidence: /etc/NetworkManager/conf.d/cni.conf:2: unmanaged-devices=*;except:interface-name:tunl0
remedy: write to /etc/NetworkManager/conf.d/99-cni.conf: [keyfile] unmanaged-devices+=interface-name:tunl*; then run: nmcli general reload`},
		{name: "off", node: node(nil, nil), want: "skip: NetworkManager is off"},
	})
}

func TestUnitsThatMustBeOff(t *testing.T) {
	judgeSettings(t, "firewalld", checks.Run, []settingCase{
		{name: "running", node: with(node(nil, nil), "firewalld.service", "active", "enabled"), want: `warn
want: off
got: firewalld.service is active, enabled
evidence: firewalld.service: active, enabled
remedy: run: systemctl disable --now firewalld.service`},
		{name: "stopped", node: with(node(nil, nil), "firewalld.service", "inactive", "disabled"), want: `pass
want: off
got: off
evidence: firewalld.service: inactive, disabled`},
	})
	judgeSettings(t, "nm-cloud-setup", checks.Run, []settingCase{
		{name: "the timer alone", node: with(node(nil, nil), "nm-cloud-setup.timer", "active", "enabled"), want: `warn
want: off
got: nm-cloud-setup.timer is active, enabled
evidence: nm-cloud-setup.service: inactive
evidence: nm-cloud-setup.timer: active, enabled
remedy: run: systemctl disable --now nm-cloud-setup.service nm-cloud-setup.timer; then restart the node, the rules stay`},
	})
	stale := node(nil, nil)
	stale.Routing = []host.RoutingRule{
		{Priority: 100, Table: 30200, From: "10.0.0.9/32"}, // somebody else's
		{Priority: 30200, Table: 30200, From: "10.0.1.5/32", Routes: 1}, {Priority: 30200, Table: 30200, From: "10.0.1.6/32", Routes: 1},
		{Priority: 30401, Table: 30401, From: "10.0.2.5/32", Routes: 1},
	}
	other := node(nil, nil)
	other.Routing = []host.RoutingRule{{Priority: 1024, Table: 2, From: "10.0.1.5/32", Routes: 2}, {Priority: 30300, Table: 30300, From: "10.0.1.5/32"}}
	judgeSettings(t, "nm-cloud-setup", checks.Run, []settingCase{
		{name: "off, and its rules stand", node: stale, want: `warn
want: off
got: off, and its rules stand, to table 30200, 30401
evidence: ip rule: 30200: from 10.0.1.5/32 lookup 30200, 1 routes
evidence: ip rule: 30200: from 10.0.1.6/32 lookup 30200, 1 routes
remedy: restart the node: nobody takes back rules of nm-cloud-setup that was on before`},
		{name: "on, with its rules", node: func() *hosttest.Machine {
			m := with(node(nil, nil), "nm-cloud-setup.timer", "active", "enabled")
			m.Routing = stale.Routing[3:]
			return m
		}(), want: `warn
want: off
got: nm-cloud-setup.timer is active, enabled, and its rules stand, to table 30401
evidence: ip rule: 30401: from 10.0.2.5/32 lookup 30401, 1 routes
evidence: nm-cloud-setup.service: inactive
remedy: run: systemctl disable --now nm-cloud-setup.service nm-cloud-setup.timer; then restart the node, the rules stay`},
		{name: "rules of a CNI", node: other, want: `pass
want: off
got: off
evidence: nm-cloud-setup.service: inactive
evidence: nm-cloud-setup.timer: inactive`},
	})
	judgeSettings(t, "nm-cloud-setup", checks.Image, []settingCase{
		{name: "enabled in an image", tree: map[string]string{"/etc/systemd/system/timers.target.wants/nm-cloud-setup.timer": "-> /usr/lib/systemd/system/nm-cloud-setup.timer"}, want: `warn
want: off
got: nm-cloud-setup.timer is enabled
evidence: nm-cloud-setup.service: not enabled
evidence: /etc/systemd/system/timers.target.wants/nm-cloud-setup.timer: enabled
remedy: run: systemctl disable --now nm-cloud-setup.service nm-cloud-setup.timer; then restart the node, the rules stay`},
		{name: "absent", tree: map[string]string{"/etc/hostname": "n"}, want: `pass
want: off
got: off
evidence: nm-cloud-setup.service: not enabled
evidence: nm-cloud-setup.timer: not enabled`},
	})
}
