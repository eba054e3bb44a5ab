package links_test

import (
	"testing"

	"nodegate/checks/checkstest"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

func TestVXLANChecksum(t *testing.T) {
	oldPostrouting := checkstest.Changed(t, checkstest.ReturnClear, "", checkstest.Masquerade, checkstest.OldForm)
	node := func(save, kernel, os string, offload, udpcsum bool) *hosttest.Machine {
		m := checkstest.ProxyNode(save, "0")
		m.Kernel = kernel
		m.Files["/etc/os-release"] = "ID=" + os + "\n"
		m.Links = map[string]*hosttest.Link{"eth0": {MTU: 1500}, "flannel.1": {Kind: "vxlan", MTU: 1450,
			VXLAN:    &host.VXLAN{UDPCSum: udpcsum, Port: 8472, Parent: "eth0"},
			Features: map[string]host.Feature{"tx-checksum-ip-generic": {Available: true, Requested: offload, Active: offload}}}}
		return m
	}
	none := node(oldPostrouting, "5.4.38", "flatcar", true, false)
	delete(none.Links, "flannel.1")
	checkstest.Run(t, []checkstest.Case{
		{What: "all four conditions", Problem: "vxlan.checksum", Node: node(oldPostrouting, "5.4.38-flatcar", "flatcar", true, false), Want: `
fail
want: not all four conditions met
got: all four conditions met on flannel.1
evidence: flannel.1: udpcsum false, tx-checksum-ip-generic on
evidence: uname -r: 5.4.38-flatcar: fixed only since 5.4.41
evidence: iptables nat KUBE-POSTROUTING: -A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -m mark --mark 0x4000/0x4000 -j MASQUERADE --random-fully: the mark stays on the packet: after VXLAN encapsulation it is masqueraded again with a random port, which breaks the checksum on kernels without the fix (delays of 1, 3 and 63 s)` + "\nremedy: upgrade kube-proxy to 1.16.13, 1.17.9, 1.18.6 or later; otherwise use a kernel with the fix; otherwise run `ethtool -K flannel.1 tx-checksum-ip-generic off` now and add a link block with offload tx-checksum-ip-generic = false to the policy"},
		{What: "kernel unknown", Problem: "vxlan.checksum", Node: node(oldPostrouting, "4.19.0-9-amd64", "debian", true, false), Want: `
unknown
error: three of four conditions are met on flannel.1, and it is unknown which kernels of debian before 5.7 have the fix (kernel 4.19.0-9-amd64)`},
		{What: "fixed kernel", Problem: "vxlan.checksum", Node: node(oldPostrouting, "6.1.0-28-amd64", "debian", true, false), Want: `
pass
want: not all four conditions met
got: not all four conditions met: the kernel has the fix
evidence: flannel.1: udpcsum false, tx-checksum-ip-generic on
evidence: uname -r: 6.1.0-28-amd64: fixed since 5.7`},
		{What: "offload off", Problem: "vxlan.checksum", Node: node(oldPostrouting, "5.4.38", "flatcar", false, false), Want: `
pass
want: not all four conditions met
got: not all four conditions met: no tunnel without an outer checksum offloads the inner one
evidence: flannel.1: udpcsum false, tx-checksum-ip-generic off
evidence: uname -r: 5.4.38: fixed only since 5.4.41`},
		{What: "outer checksum", Problem: "vxlan.checksum", Node: node(oldPostrouting, "5.4.38", "flatcar", true, true), Want: `
pass
want: not all four conditions met
got: not all four conditions met: no tunnel without an outer checksum offloads the inner one
evidence: flannel.1: udpcsum true, tx-checksum-ip-generic on
evidence: uname -r: 5.4.38: fixed only since 5.4.41`},
		{What: "new form", Problem: "vxlan.checksum", Node: node(checkstest.ProxySave, "5.4.38", "flatcar", true, false), Want: `
pass
want: not all four conditions met
got: not all four conditions met: not masqueraded twice
evidence: flannel.1: udpcsum false, tx-checksum-ip-generic on
evidence: uname -r: 5.4.38: fixed only since 5.4.41
evidence: iptables nat KUBE-POSTROUTING: masquerades once, or without --random-fully`},
		{What: "no tunnel", Problem: "vxlan.checksum", Node: none, Want: `
skipped
skipped: no VXLAN tunnel`},
	})
}
