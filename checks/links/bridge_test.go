package links_test

import (
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

// bridgedNode returns a node with one Pod on cni0 and the given values of the two switches ("": absent).
func bridgedNode(filter, all, own string) *hosttest.Machine {
	m := &hosttest.Machine{
		Files: map[string]string{"/sys/class/net/cni0/bridge/nf_call_" + filter: own + "\n"},
		Links: map[string]*hosttest.Link{
			"cni0": {Kind: "bridge", MTU: 1450}, "veth1": {Kind: "veth", MTU: 1450, Master: "cni0"},
			"br0": {Kind: "bridge", MTU: 1500}, "eth0": {MTU: 1500, Master: "br0"},
		},
	}
	if all != "" {
		m.Sysctl("net/bridge/bridge-nf-call-"+filter, all)
	}
	return m
}

func TestBridgeNetfilter(t *testing.T) {
	routed := &hosttest.Machine{Links: map[string]*hosttest.Link{"cali1": {Kind: "veth", MTU: 1450}, "docker0": {Kind: "bridge", MTU: 1500}}}
	withIPv6 := bridgedNode("ip6tables", "1", "0")
	withIPv6.Sysctl("net/ipv6/conf/all/disable_ipv6", "1")
	checkstest.Run(t, []checkstest.Case{
		{What: "off", Problem: "bridge.netfilter", Node: bridgedNode("iptables", "0", "0"), Want: `
fail
want: every Pod bridge passes packets to iptables
got: off for cni0
evidence: /proc/sys/net/bridge/bridge-nf-call-iptables: 0
evidence: /sys/class/net/cni0/bridge/nf_call_iptables: 0` + "\nremedy: run `sysctl -w net.bridge.bridge-nf-call-iptables=1` and add the sysctl to the policy"},
		{What: "off, with the sysctl in the policy", Problem: "bridge.netfilter", Stage: checks.Boot,
			Policy: `sysctl "net.bridge.bridge-nf-call-iptables" { value = 1 }`, Node: bridgedNode("iptables", "0", "0"), Want: `
fail
want: every Pod bridge passes packets to iptables
got: off for cni0
because: sysctl.net.bridge.bridge-nf-call-iptables
evidence: /proc/sys/net/bridge/bridge-nf-call-iptables: 0
evidence: /sys/class/net/cni0/bridge/nf_call_iptables: 0` + "\nremedy: run `sysctl -w net.bridge.bridge-nf-call-iptables=1` and add the sysctl to the policy"},
		{What: "no br_netfilter", Problem: "bridge.netfilter", Policy: `module "br_netfilter" {}`, Node: bridgedNode("iptables", "", "1"), Want: `
fail
want: every Pod bridge passes packets to iptables
got: br_netfilter not loaded
because: module.br_netfilter
evidence: /proc/sys/net/bridge/bridge-nf-call-iptables: no such parameter` + "\nremedy: run `modprobe br_netfilter` and add `module \"br_netfilter\" {}` to the policy"},
		{What: "br_netfilter forbidden", Problem: "bridge.netfilter", Policy: `module "br_netfilter" {}`, Node: forbiddenNode(), Want: `
fail
want: every Pod bridge passes packets to iptables
got: br_netfilter not loaded
because: module.br_netfilter
evidence: /proc/sys/net/bridge/bridge-nf-call-iptables: no such parameter` + "\nremedy: remove \"install br_netfilter /bin/false\" from /etc/modprobe.d/x.conf:1, then run `modprobe br_netfilter` and add `module \"br_netfilter\" {}` to the policy"},
		{What: "on for all bridges", Problem: "bridge.netfilter", Node: bridgedNode("iptables", "1", "0"), Want: `
pass
want: every Pod bridge passes packets to iptables
got: every Pod bridge passes packets to iptables
evidence: /proc/sys/net/bridge/bridge-nf-call-iptables: 1
evidence: /sys/class/net/cni0/bridge/nf_call_iptables: 0`},
		{What: "on for this bridge", Problem: "bridge.netfilter", Node: bridgedNode("iptables", "0", "1"), Want: `
pass
want: every Pod bridge passes packets to iptables
got: every Pod bridge passes packets to iptables
evidence: /proc/sys/net/bridge/bridge-nf-call-iptables: 0
evidence: /sys/class/net/cni0/bridge/nf_call_iptables: 1`},
		{What: "routed Pods", Problem: "bridge.netfilter", Node: routed, Want: `
skipped
skipped: no bridge has Pods on it; routed Pods do not need br_netfilter`},
	})
}

// TestBridgesOnTheKernel tests the bridge and MTU problems on real links.
func TestBridgesOnTheKernel(t *testing.T) {
	h := checkstest.ScratchSys(t)
	checkstest.Is(t, h, "no links", "bridge.netfilter", "skipped: no bridge has Pods on it; routed Pods do not need br_netfilter")
	checkstest.Is(t, h, "no links", "mtu.chain", "skipped: no VXLAN tunnel")
	checkstest.PodNetwork(t)

	const key = "net/bridge/bridge-nf-call-iptables"
	hosttest.NeedBridgeNetfilter(t)
	checkstest.SetSysctl(t, h, key, "1")
	checkstest.Is(t, h, "the parameter is 1", "bridge.netfilter", "pass: every Pod bridge passes packets to iptables")
	checkstest.SetSysctl(t, h, key, "0")
	checkstest.Is(t, h, "both are 0", "bridge.netfilter", "fail: off for cni0")
	require.NoError(t, h.Files.Write("/sys/class/net/cni0/bridge/nf_call_iptables", []byte("1")))
	checkstest.Is(t, h, "the bridge's own switch is 1", "bridge.netfilter", "pass: every Pod bridge passes packets to iptables")

	checkstest.Is(t, h, "tunnel 1450", "mtu.chain", "pass: tunnel <= NIC - 50, Pods <= tunnel")
	checkstest.SetMTU(t, h, "cni0", 1500)
	checkstest.SetMTU(t, h, "veth0", 1500)
	checkstest.Is(t, h, "bridge 1500", "mtu.chain", "warn: cni0 1500 > 1450, veth0 1500 > 1450")
	checkstest.SetMTU(t, h, "cni0", 1400)
	checkstest.SetMTU(t, h, "veth0", 1400)
	checkstest.SetMTU(t, h, "nic0", 1480)
	checkstest.Is(t, h, "NIC 1480", "mtu.chain", "warn: flannel.1 1450 > 1430")
	checkstest.Is(t, h, "no such driver", "ena.allowance", "skipped: no link uses the ena driver")
}

// forbiddenNode is a node with a bridge of Pods whose modprobe.d forbids br_netfilter.
func forbiddenNode() *hosttest.Machine {
	m := bridgedNode("iptables", "", "1")
	m.Files["/lib/modules/6.1.0/modules.dep"] = "kernel/net/bridge/br_netfilter.ko:\n"
	m.Files["/etc/modprobe.d/x.conf"] = "install br_netfilter /bin/false\n"
	return m
}
