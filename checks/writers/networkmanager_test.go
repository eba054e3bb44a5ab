package writers_test

import (
	"maps"
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/host/hosttest"
)

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
got: managed: flannel* tunl* vxlan.calico
evidence: NetworkManager.service: active, enabled
remedy: create /etc/NetworkManager/conf.d/99-cni.conf with section [keyfile] and unmanaged-devices+=interface-name:flannel*;interface-name:tunl*;interface-name:vxlan.calico, then run ` + "`nmcli general reload`"},
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
got: managed: flannel* tunl* vxlan.calico
evidence: NetworkManager.service: active, enabled
remedy: create /etc/NetworkManager/conf.d/99-cni.conf with section [keyfile] and unmanaged-devices+=interface-name:flannel*;interface-name:tunl*;interface-name:vxlan.calico, then run ` + "`nmcli general reload`"},
		{What: "off", Node: checkstest.Node(nil, nil), Want: `
skipped
skipped: NetworkManager is off`},
	})
}
