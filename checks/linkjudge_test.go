package checks_test

import (
	"testing"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

// bridgedNode has one Pod on cni0, and the two switches as given ("" is absent).
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
	runJudged(t, []judgedCase{
		{what: "off", name: "bridge.netfilter", node: bridgedNode("iptables", "0", "0"), want: `
fail
want: every bridge on
got: off on cni0
evidence: /proc/sys/net/bridge/bridge-nf-call-iptables: 0
remedy: run: sysctl -w net.bridge.bridge-nf-call-iptables=1; and put it into the policy`},
		{what: "off, as the policy's own sysctl says", name: "bridge.netfilter", stage: checks.Boot,
			policy: `sysctl "net.bridge.bridge-nf-call-iptables" { value = 1 }`, node: bridgedNode("iptables", "0", "0"), want: `
fail
want: every bridge on
got: off on cni0
evidence: /proc/sys/net/bridge/bridge-nf-call-iptables: 0
because: sysctl.net.bridge.bridge-nf-call-iptables
remedy: run: sysctl -w net.bridge.bridge-nf-call-iptables=1; and put it into the policy`},
		{what: "no br_netfilter", name: "bridge.netfilter", policy: `module "br_netfilter" {}`, node: bridgedNode("iptables", "", "1"), want: `
fail
want: every bridge on
got: br_netfilter not loaded
evidence: /proc/sys/net/bridge/bridge-nf-call-iptables: no such parameter
because: module.br_netfilter
remedy: run: modprobe br_netfilter; and put it into the policy: module "br_netfilter" {}`},
		{what: "on for all", name: "bridge.netfilter", node: bridgedNode("iptables", "1", "0"), want: `
pass
want: every bridge on
got: every bridge on
evidence: /proc/sys/net/bridge/bridge-nf-call-iptables: 1`},
		{what: "on for this one", name: "bridge.netfilter", node: bridgedNode("iptables", "0", "1"), want: `
pass
want: every bridge on
got: every bridge on
evidence: /proc/sys/net/bridge/bridge-nf-call-iptables: 0`},
		{what: "routed Pods", name: "bridge.netfilter", node: routed, want: `
skip
skip: no bridge has Pods on it: routed Pods need no br_netfilter`},
		{what: "no IPv6", name: "bridge.netfilter-ipv6", node: bridgedNode("ip6tables", "1", "0"), want: `
warn
want: bridged IPv6 not dropped
got: dropped on cni0
evidence: /proc/sys/net/bridge/bridge-nf-call-ip6tables: 1
remedy: run: sysctl -w net.bridge.bridge-nf-call-ip6tables=0; echo 0 > /sys/class/net/cni0/bridge/nf_call_ip6tables`},
		{what: "no IPv6, not filtered", name: "bridge.netfilter-ipv6", node: bridgedNode("ip6tables", "0", "0"), want: `
pass
want: bridged IPv6 not dropped
got: bridged IPv6 not dropped
evidence: /proc/sys/net/bridge/bridge-nf-call-ip6tables: 0`},
		{what: "IPv6", name: "bridge.netfilter-ipv6", node: withIPv6, want: `
skip
skip: this kernel has IPv6`},
		{what: "no br_netfilter", name: "bridge.netfilter-ipv6", node: bridgedNode("ip6tables", "", "1"), want: `
skip
skip: no bridge that has Pods on it is filtered`},
	})
}

func TestMTUChain(t *testing.T) {
	node := func(tunnel, pods int) *hosttest.Machine {
		return &hosttest.Machine{Routes: []string{"eth0"}, Links: map[string]*hosttest.Link{
			"eth0":         {MTU: 1500},
			"flannel.1":    {Kind: "vxlan", MTU: tunnel, VXLAN: &host.VXLAN{Port: 8472, Parent: "eth0"}},
			"cilium_vxlan": {Kind: "vxlan", MTU: 1500, VXLAN: &host.VXLAN{Port: 8472}},
			"cni0":         {Kind: "bridge", MTU: pods},
			"veth1":        {Kind: "veth", MTU: pods, Master: "cni0"},
			"docker0":      {Kind: "bridge", MTU: 1500}, "veth2": {Kind: "veth", MTU: 1500, Master: "docker0"},
		}}
	}
	calico := &hosttest.Machine{Routes: []string{"ens5"}, Links: map[string]*hosttest.Link{
		"ens5":         {MTU: 9001},
		"vxlan.calico": {Kind: "vxlan", MTU: 8951, VXLAN: &host.VXLAN{Port: 4789}},
		"cali1234":     {Kind: "veth", MTU: 9001},
		"br0":          {Kind: "bridge", MTU: 9001}, "veth1": {Kind: "veth", MTU: 9001, Master: "br0"}, "eth1": {MTU: 9001, Master: "br0"},
	}}
	runJudged(t, []judgedCase{
		{what: "tunnel too large", name: "mtu.chain", node: node(1500, 1450), want: `
warn
want: tunnel <= NIC - 50, Pods <= tunnel
got: flannel.1 1500 > 1450
evidence: flannel.1: mtu 1500 through eth0 mtu 1500
remedy: run: ip link set flannel.1 mtu 1450; and set that MTU in the CNI's configuration: Pods keep theirs until they are made again`},
		{what: "bridge and Pod too large", name: "mtu.chain", node: node(1450, 1500), want: `
warn
want: tunnel <= NIC - 50, Pods <= tunnel
got: cni0 1500 > 1450, veth1 1500 > 1450
evidence: flannel.1: mtu 1450 through eth0 mtu 1500
remedy: run: ip link set cni0 mtu 1450; ip link set veth1 mtu 1450; and set that MTU in the CNI's configuration: Pods keep theirs until they are made again`},
		{what: "routed Pod too large", name: "mtu.chain", node: calico, want: `
warn
want: tunnel <= NIC - 50, Pods <= tunnel
got: cali1234 9001 > 8951
evidence: vxlan.calico: mtu 8951 through ens5 mtu 9001
remedy: run: ip link set cali1234 mtu 8951; and set that MTU in the CNI's configuration: Pods keep theirs until they are made again`},
		{what: "right", name: "mtu.chain", node: node(1450, 1450), want: `
pass
want: tunnel <= NIC - 50, Pods <= tunnel
got: tunnel <= NIC - 50, Pods <= tunnel
evidence: flannel.1: mtu 1450 through eth0 mtu 1500`},
		{what: "no tunnel", name: "mtu.chain", node: &hosttest.Machine{Links: map[string]*hosttest.Link{"eth0": {MTU: 1500}}}, want: `
skip
skip: no VXLAN tunnel`},
	})
}

func TestENAAllowance(t *testing.T) {
	node := func(pps uint64) *hosttest.Machine {
		return &hosttest.Machine{Links: map[string]*hosttest.Link{
			"lo":   {},
			"ens5": {Driver: "ena", Stats: map[string]uint64{"pps_allowance_exceeded": pps, "bw_in_allowance_exceeded": 0, "tx_timeout": 3}},
		}}
	}
	rising := node(7)
	runJudged(t, []judgedCase{
		{what: "exceeded once", name: "ena.allowance", node: node(34), want: `
warn
want: 0
got: ens5 pps_allowance_exceeded=34
evidence: ethtool -S ens5: pps_allowance_exceeded=34
remedy: take a larger instance type; for linklocal (1024 packets a second to DNS, IMDS and NTP) run NodeLocal DNSCache; for conntrack lower the number of tracked connections`},
		{what: "exceeded now", name: "ena.allowance", node: rising, host: func(h *host.Host) { h.Links = &risingStats{Links: h.Links} }, want: `
warn
want: 0
got: ens5 pps_allowance_exceeded=8 rising
evidence: ethtool -S ens5: pps_allowance_exceeded=8 rising
remedy: take a larger instance type; for linklocal (1024 packets a second to DNS, IMDS and NTP) run NodeLocal DNSCache; for conntrack lower the number of tracked connections`},
		{what: "never", name: "ena.allowance", node: node(0), want: `
pass
want: 0
got: 0
evidence: ethtool -S ens5: every *_allowance_exceeded is 0, or the driver has none`},
		{what: "another driver", name: "ena.allowance", node: &hosttest.Machine{Links: map[string]*hosttest.Link{"eth0": {Driver: "virtio_net"}}}, want: `
skip
skip: no link has the driver ena`},
	})
}
