package writers_test

import (
	"maps"
	"strings"
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/host/hosttest"
)

// nmRules has the form of the rules that NetworkManager ships.
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
	bare := func(files map[string]string) *hosttest.Machine {
		return checkstest.WithUnit(checkstest.Node(files, nil), "NetworkManager.service", "active", "enabled")
	}
	nm := func(files map[string]string) *hosttest.Machine {
		files = maps.Clone(files)
		if files == nil {
			files = map[string]string{}
		}
		files["/etc/cni/net.d/10-canal.conflist"] = `{"plugins": [{"type": "calico"}]}`
		return checkstest.WithUnit(checkstest.Node(files, nil), "NetworkManager.service", "active", "enabled")
	}
	checkstest.RunOne(t, "networkmanager.cni-links", checks.Run, []checkstest.Case{
		{What: "not configured", Node: nm(nil), Want: `warn
want: CNI interfaces unmanaged
got: managed: flannel* cali* tunl* vxlan.calico
evidence: NetworkManager.service: active, enabled
remedy: create /etc/NetworkManager/conf.d/99-cni.conf with section [keyfile] and unmanaged-devices+=interface-name:flannel*;interface-name:cali*;interface-name:tunl*;interface-name:vxlan.calico, then run ` + "`nmcli general reload`"},
		{What: "Calico's file, and a main file before it", Node: nm(map[string]string{
			"/etc/NetworkManager/NetworkManager.conf": "[main]\nplugins=keyfile\n[keyfile]\nunmanaged-devices=interface-name:flannel*\n",
			"/etc/NetworkManager/conf.d/calico.conf": "[keyfile]\nunmanaged-devices=" +
				"interface-name:cali*;interface-name:tunl*;interface-name:vxlan.calico\n",
		}), Want: `
warn
want: CNI interfaces unmanaged
got: managed: flannel*
evidence: NetworkManager.service: active, enabled
evidence: /etc/NetworkManager/NetworkManager.conf:4: unmanaged-devices=interface-name:flannel*
evidence: /etc/NetworkManager/conf.d/calico.conf:2: unmanaged-devices=interface-name:cali*;interface-name:tunl*;interface-name:vxlan.calico
remedy: create /etc/NetworkManager/conf.d/99-cni.conf with section [keyfile] and unmanaged-devices+=interface-name:flannel*, then run ` + "`nmcli general reload`"},
		{What: "all of them", Node: nm(map[string]string{
			"/usr/lib/NetworkManager/conf.d/10-rke2.conf": "[keyfile]\nunmanaged-devices=interface-name:flannel*;interface-name:cali*\n",
			"/etc/NetworkManager/conf.d/tunnels.conf":     "[keyfile]\nunmanaged-devices+=interface-name:tunl*,interface-name:=vxlan.calico\n",
		}), Want: `
pass
want: CNI interfaces unmanaged
got: CNI interfaces unmanaged
evidence: NetworkManager.service: active, enabled
evidence: /usr/lib/NetworkManager/conf.d/10-rke2.conf:2: unmanaged-devices=interface-name:flannel*;interface-name:cali*
evidence: /etc/NetworkManager/conf.d/tunnels.conf:2: unmanaged-devices+=interface-name:tunl*,interface-name:=vxlan.calico`},
		{What: "a device section", Node: nm(map[string]string{
			"/etc/NetworkManager/conf.d/cni.conf": "[device-cni]\nmatch-device=" +
				"interface-name:flannel*;interface-name:cali*;interface-name:tunl*;interface-name:vxlan.calico\nmanaged=0\n",
		}), Want: `pass
want: CNI interfaces unmanaged
got: CNI interfaces unmanaged
evidence: NetworkManager.service: active, enabled
evidence: /etc/NetworkManager/conf.d/cni.conf:3: managed=0 for interface-name:flannel*;interface-name:cali*;interface-name:tunl*;interface-name:vxlan.calico`},
		{What: "NetworkManager's own udev rules leave veths alone", Node: nm(map[string]string{
			"/usr/lib/udev/rules.d/85-nm-unmanaged.rules": nmRules}), Want: `warn
want: CNI interfaces unmanaged
got: managed: flannel* tunl* vxlan.calico
evidence: NetworkManager.service: active, enabled
evidence: /usr/lib/udev/rules.d/85-nm-unmanaged.rules:6: NM_UNMANAGED=1 for cali*
remedy: create /etc/NetworkManager/conf.d/99-cni.conf with section [keyfile] and unmanaged-devices+=interface-name:flannel*;interface-name:tunl*;interface-name:vxlan.calico, then run ` + "`nmcli general reload`"},
		{What: "a udev rule for all of them", Node: nm(map[string]string{
			"/usr/lib/udev/rules.d/85-nm-unmanaged.rules": nmRules,
			"/etc/udev/rules.d/90-cni.rules": `SUBSYSTEM=="net", ACTION!="remove", ` +
				`KERNEL=="flannel*|tunl*|vxlan.calico", ENV{NM_UNMANAGED}="1"` + "\n",
		}), Want: `
pass
want: CNI interfaces unmanaged
got: CNI interfaces unmanaged
evidence: NetworkManager.service: active, enabled
evidence: /etc/udev/rules.d/90-cni.rules:1: NM_UNMANAGED=1 for flannel*
evidence: /usr/lib/udev/rules.d/85-nm-unmanaged.rules:6: NM_UNMANAGED=1 for cali*
evidence: /etc/udev/rules.d/90-cni.rules:1: NM_UNMANAGED=1 for tunl*
evidence: /etc/udev/rules.d/90-cni.rules:1: NM_UNMANAGED=1 for vxlan.calico`},
		{What: "a udev rule that depends on the machine", Node: nm(map[string]string{
			"/etc/udev/rules.d/90-cni.rules": `SUBSYSTEM=="net", ATTR{address}=="02:*", ENV{NM_UNMANAGED}="1"` + "\n",
		}), Want: "unknown\n" + strings.Join([]string{
			"error: /etc/udev/rules.d/90-cni.rules:1: could not determine whether this rule matches flannel*",
			"/etc/udev/rules.d/90-cni.rules:1: could not determine whether this rule matches cali*",
			"/etc/udev/rules.d/90-cni.rules:1: could not determine whether this rule matches tunl*",
			"/etc/udev/rules.d/90-cni.rules:1: could not determine whether this rule matches vxlan.calico"}, "\n")},
		{What: "udev's database of existing links", Node: present(nm(map[string]string{
			"/etc/udev/rules.d/90-cni.rules":       `SUBSYSTEM=="net", ATTR{address}=="02:*", ENV{NM_UNMANAGED}="1"` + "\n",
			"/etc/NetworkManager/conf.d/rest.conf": "[keyfile]\nunmanaged-devices=interface-name:cali*;interface-name:tunl*\n",
			"/sys/class/net/flannel.1/ifindex":     "7\n", "/run/udev/data/n7": "I:100\nE:ID_NET_DRIVER=vxlan\nE:NM_UNMANAGED=1\n",
			"/sys/class/net/vxlan.calico/ifindex": "8\n", "/run/udev/data/n8": "I:100\nE:ID_NET_DRIVER=vxlan\n",
		}), "flannel.1", "vxlan.calico"), Want: `
warn
want: CNI interfaces unmanaged
got: managed: vxlan.calico
evidence: NetworkManager.service: active, enabled
evidence: /etc/NetworkManager/conf.d/rest.conf:2: unmanaged-devices=interface-name:cali*;interface-name:tunl*
evidence: /run/udev/data/n7: NM_UNMANAGED=1
remedy: create /etc/NetworkManager/conf.d/99-cni.conf with section [keyfile] and unmanaged-devices+=interface-name:vxlan.calico, then run ` + "`nmcli general reload`"},
		{What: "an exception", Node: nm(map[string]string{
			"/etc/NetworkManager/conf.d/cni.conf": "[keyfile]\nunmanaged-devices=*;except:interface-name:tunl0\n",
		}), Want: `warn
want: CNI interfaces unmanaged
got: managed: tunl*
evidence: NetworkManager.service: active, enabled
evidence: /etc/NetworkManager/conf.d/cni.conf:2: unmanaged-devices=*;except:interface-name:tunl0
remedy: create /etc/NetworkManager/conf.d/99-cni.conf with section [keyfile] and unmanaged-devices+=interface-name:tunl*, then run ` + "`nmcli general reload`"},
		{What: "the links of the CNI that is there", Node: bare(map[string]string{
			"/etc/cni/net.d/10-calico.conflist": `{"plugins": [{"type": "calico"}]}`,
			"/etc/NetworkManager/conf.d/calico.conf": "[keyfile]\nunmanaged-devices=" +
				"interface-name:cali*;interface-name:tunl*;interface-name:vxlan.calico\n",
		}), Want: `pass
want: CNI interfaces unmanaged
got: CNI interfaces unmanaged
evidence: NetworkManager.service: active, enabled
evidence: /etc/NetworkManager/conf.d/calico.conf:2: unmanaged-devices=interface-name:cali*;interface-name:tunl*;interface-name:vxlan.calico`},
		{What: "a CNI with other links", Node: bare(map[string]string{
			"/etc/cni/net.d/10-ovn-kubernetes.conf": `{"type": "ovn-k8s-cni-overlay"}`}), Want: `pass
want: CNI interfaces unmanaged
got: CNI interfaces unmanaged
evidence: NetworkManager.service: active, enabled`},
		{What: "an image without a CNI yet, made for one", Node: bare(map[string]string{
			"/etc/NetworkManager/conf.d/sdn.conf": "[keyfile]\nunmanaged-devices=driver:veth;interface-name:ovn-k8s-*;interface-name:br-int\n",
		}), Want: `pass
want: CNI interfaces unmanaged
got: CNI interfaces unmanaged
evidence: NetworkManager.service: active, enabled
evidence: /etc/NetworkManager/conf.d/sdn.conf:2: unmanaged-devices=driver:veth;interface-name:ovn-k8s-*;interface-name:br-int`},
		{What: "an image without a CNI yet", Node: bare(nil), Want: `warn
want: CNI interfaces unmanaged
got: managed: flannel* cali* tunl* vxlan.calico
evidence: NetworkManager.service: active, enabled
remedy: create /etc/NetworkManager/conf.d/99-cni.conf with section [keyfile] and unmanaged-devices+=interface-name:flannel*;interface-name:cali*;interface-name:tunl*;interface-name:vxlan.calico, then run ` + "`nmcli general reload`"},
		{What: "off", Node: checkstest.Node(nil, nil), Want: `
skipped
skipped: NetworkManager is off`},
	})
}
