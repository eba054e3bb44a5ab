package links_test

import (
	"testing"

	"nodegate/checks/checkstest"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

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
	weave := &hosttest.Machine{Routes: []string{"eth0"}, Links: map[string]*hosttest.Link{
		"eth0":       {MTU: 1500},
		"vxlan-6784": {Kind: "vxlan", MTU: 65535, VXLAN: &host.VXLAN{Port: 6784, FlowBased: true}},
		"weave":      {Kind: "bridge", MTU: 1376}, "vethwepl1": {Kind: "veth", MTU: 1376, Master: "weave"},
	}}
	checkstest.Run(t, []checkstest.Case{
		{What: "a tunnel of Open vSwitch", Problem: "mtu.chain", Node: weave, Want: "skip\nskip: no VXLAN tunnel"},
		{What: "tunnel too large", Problem: "mtu.chain", Node: node(1500, 1450), Want: `
warn
want: tunnel <= NIC - 50, Pods <= tunnel
got: flannel.1 1500 > 1450
evidence: flannel.1: mtu 1500 through eth0 mtu 1500
remedy: run: ip link set dev flannel.1 mtu 1450; and set that MTU in the CNI's configuration: Pods keep theirs until they are made again`},
		{What: "bridge and Pod too large", Problem: "mtu.chain", Node: node(1450, 1500), Want: `
warn
want: tunnel <= NIC - 50, Pods <= tunnel
got: cni0 1500 > 1450, veth1 1500 > 1450
evidence: flannel.1: mtu 1450 through eth0 mtu 1500
evidence: cni0: mtu 1500
evidence: veth1: mtu 1500
remedy: run: ip link set dev cni0 mtu 1450; ip link set dev veth1 mtu 1450; and set that MTU in the CNI's configuration: Pods keep theirs until they are made again`},
		{What: "routed Pod too large", Problem: "mtu.chain", Node: calico, Want: `
warn
want: tunnel <= NIC - 50, Pods <= tunnel
got: cali1234 9001 > 8951
evidence: vxlan.calico: mtu 8951 through ens5 mtu 9001
evidence: cali1234: mtu 9001
remedy: run: ip link set dev cali1234 mtu 8951; and set that MTU in the CNI's configuration: Pods keep theirs until they are made again`},
		{What: "right", Problem: "mtu.chain", Node: node(1450, 1450), Want: `
pass
want: tunnel <= NIC - 50, Pods <= tunnel
got: tunnel <= NIC - 50, Pods <= tunnel
evidence: flannel.1: mtu 1450 through eth0 mtu 1500`},
		{What: "no tunnel", Problem: "mtu.chain", Node: &hosttest.Machine{Links: map[string]*hosttest.Link{"eth0": {MTU: 1500}}}, Want: `
skip
skip: no VXLAN tunnel`},
	})
}
