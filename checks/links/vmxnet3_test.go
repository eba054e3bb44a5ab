package links_test

import (
	"testing"

	"nodegate/checks/checkstest"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

func TestVMXNET3(t *testing.T) {
	node := func(driver, parent string, segments, sums bool) *hosttest.Machine {
		m := &hosttest.Machine{Links: map[string]*hosttest.Link{
			"ens192": {MTU: 1500, Driver: driver, Master: "bond0", Features: map[string]host.Feature{
				"tx-udp_tnl-segmentation":      {Available: true, Requested: segments, Active: segments},
				"tx-udp_tnl-csum-segmentation": {Available: true, Requested: sums, Active: sums},
				"tx-tcp-segmentation":          {Available: true, Requested: true, Active: true},
			}},
			"ens224":       {MTU: 1500, Driver: "e1000e"},
			"bond0":        {MTU: 1500, Kind: "bond"},
			"vlan7":        {MTU: 1500, Kind: "vlan"},
			"vxlan.calico": {Kind: "vxlan", MTU: 1450, VXLAN: &host.VXLAN{Port: 4789, Parent: parent}},
		}}
		return m
	}
	none := node("vmxnet3", "ens192", true, true)
	delete(none.Links, "vxlan.calico")
	const seen = "\nevidence: vxlan.calico: VXLAN over ens192, port 4789\nevidence: ens192: tx-udp_tnl-csum-segmentation "
	both := `
warn
want: no tunnel offload on vmxnet3
got: ens192 offloads packets of vxlan.calico` + seen + "on\nevidence: ens192: tx-udp_tnl-segmentation on\n" +
		"remedy: run `ethtool -K ens192 tx-udp_tnl-csum-segmentation off tx-udp_tnl-segmentation off` now; `use \"vmware\" {}` in the policy " +
		"does it at every boot"
	skipped := "\nskipped\nskipped: no VXLAN tunnel over a vmxnet3 interface"
	checkstest.Run(t, []checkstest.Case{
		{What: "both offloads", Problem: "vmxnet3.tunnel-offload", Node: node("vmxnet3", "ens192", true, true), Want: both},
		{What: "a bond", Problem: "vmxnet3.tunnel-offload", Node: node("vmxnet3", "bond0", true, true), Want: both},
		{What: "a VLAN", Problem: "vmxnet3.tunnel-offload", Node: node("vmxnet3", "vlan7", true, true), Want: both},
		{What: "no parent", Problem: "vmxnet3.tunnel-offload", Node: node("vmxnet3", "", true, true), Want: both},
		{What: "off", Problem: "vmxnet3.tunnel-offload", Node: node("vmxnet3", "ens192", false, false), Want: `
pass
want: no tunnel offload on vmxnet3
got: no tunnel offload on vmxnet3` + seen + "off\nevidence: ens192: tx-udp_tnl-segmentation off"},
		{What: "another driver", Problem: "vmxnet3.tunnel-offload", Node: node("virtio_net", "ens192", true, true), Want: skipped},
		{What: "another card", Problem: "vmxnet3.tunnel-offload", Node: node("vmxnet3", "ens224", true, true), Want: skipped},
		{What: "no tunnel", Problem: "vmxnet3.tunnel-offload", Node: none, Want: skipped},
	})
}
