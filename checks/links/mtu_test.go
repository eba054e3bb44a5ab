package links_test

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/host/netns"
	"nodegate/internal/require"
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
	others := node(1450, 1450)
	for _, name := range []string{"podman1", "cni-podman0", "nerdctl0", "incusbr0", "lxcbr0", "lxdbr0", "virbr0"} {
		others.Links[name] = &hosttest.Link{Kind: "bridge", MTU: 1500}
		others.Links["veth-"+name] = &hosttest.Link{Kind: "veth", MTU: 1500, Master: name}
	}
	untunnelled := &hosttest.Machine{Routes: []string{"eth0"}, Links: map[string]*hosttest.Link{
		"eth0": {MTU: 1500}, "cni0": {Kind: "bridge", MTU: 1500},
		"veth1": {Kind: "veth", MTU: 1230, PodMTU: 1500, Master: "cni0"},
		"veth2": {Kind: "veth", MTU: 1500, PodMTU: 1500, Master: "cni0"}, "veth3": {Kind: "veth", MTU: 1500, PodMTU: 1400, Master: "cni0"},
	}}
	behindTunnel := node(1450, 1450)
	behindTunnel.Links["veth1"].PodMTU = 1500
	oldKernel := node(1450, 1450)
	oldKernel.Refuse = map[string]error{"MTU of Pods": errors.ErrUnsupported}
	v6 := &hosttest.Machine{Routes: []string{"eth0"}, Links: map[string]*hosttest.Link{
		"eth0":            {MTU: 1500},
		"flannel-v6.1":    {Kind: "vxlan", MTU: 1450, VXLAN: &host.VXLAN{Port: 8472}},
		"vxlan-v6.calico": {Kind: "vxlan", MTU: 1430, VXLAN: &host.VXLAN{Port: 4789, V6: true}},
		"overlay":         {Kind: "vxlan", MTU: 1440, VXLAN: &host.VXLAN{Port: 4789, V6: true}},
	}}
	checkstest.Run(t, []checkstest.Case{
		{What: "a tunnel of Open vSwitch", Problem: "mtu.chain", Node: weave, Want: "skipped\nskipped: no VXLAN tunnel"},
		{What: "tunnel too large", Problem: "mtu.chain", Node: node(1500, 1450), Want: `
warn
want: tunnel <= NIC - 50, Pods <= tunnel
got: flannel.1 1500 > 1450
evidence: flannel.1: mtu 1500 through eth0 mtu 1500` + "\nremedy: run `ip link set dev flannel.1 mtu 1450` now; set the smaller MTU in the CNI's configuration and recreate the Pods"},
		{What: "bridge and Pod too large", Problem: "mtu.chain", Node: node(1450, 1500), Want: `
warn
want: tunnel <= NIC - 50, Pods <= tunnel
got: cni0 1500 > 1450, veth1 1500 > 1450
evidence: flannel.1: mtu 1450 through eth0 mtu 1500
evidence: cni0: mtu 1500
evidence: veth1: mtu 1500` + "\nremedy: run `ip link set dev cni0 mtu 1450` now; set the smaller MTU in the CNI's configuration and recreate the Pods"},
		{What: "a Pod with a larger MTU than its veth", Problem: "mtu.chain", Node: untunnelled, Want: `
warn
want: tunnel <= NIC - 50, Pods <= tunnel
got: the Pod of veth1 1500 > 1230
evidence: veth1: mtu 1230, its Pod's end 1500` + "\nremedy: run `ip link set dev veth1 mtu 1500` now; set the smaller MTU in the CNI's configuration and recreate the Pods"},
		{What: "routed Pod too large", Problem: "mtu.chain", Node: calico, Want: `
warn
want: tunnel <= NIC - 50, Pods <= tunnel
got: cali1234 9001 > 8951
evidence: vxlan.calico: mtu 8951 through ens5 mtu 9001
evidence: cali1234: mtu 9001` + "\nremedy: set the smaller MTU in the CNI's configuration and recreate the Pods"},
		{What: "a Pod with a larger MTU than its veth and the tunnel", Problem: "mtu.chain", Node: behindTunnel, Want: `
warn
want: tunnel <= NIC - 50, Pods <= tunnel
got: the Pod of veth1 1500 > 1450
evidence: flannel.1: mtu 1450 through eth0 mtu 1500
evidence: veth1: mtu 1450, its Pod's end 1500` + "\nremedy: set the smaller MTU in the CNI's configuration and recreate the Pods"},
		{What: "an old kernel", Problem: "mtu.chain", Node: oldKernel, Want: `
pass
want: tunnel <= NIC - 50, Pods <= tunnel
got: tunnel <= NIC - 50, Pods <= tunnel
evidence: flannel.1: mtu 1450 through eth0 mtu 1500
evidence: links in Pods: not compared: unsupported operation`},
		{What: "bridges of other programs", Problem: "mtu.chain", Node: others, Want: `
pass
want: tunnel <= NIC - 50, Pods <= tunnel
got: tunnel <= NIC - 50, Pods <= tunnel
evidence: flannel.1: mtu 1450 through eth0 mtu 1500`},
		{What: "IPv6, by address and by name", Problem: "mtu.chain", Node: v6, Want: `
warn
want: tunnel <= NIC - 50 (over IPv6 70), Pods <= tunnel
got: flannel-v6.1 1450 > 1430, overlay 1440 > 1430
evidence: flannel-v6.1: mtu 1450 through eth0 mtu 1500
evidence: overlay: mtu 1440 through eth0 mtu 1500
evidence: vxlan-v6.calico: mtu 1430 through eth0 mtu 1500` + "\nremedy: run `ip link set dev flannel-v6.1 mtu 1430; ip link set dev overlay mtu 1430` now; set the smaller MTU in the CNI's configuration and recreate the Pods"},
		{What: "correct", Problem: "mtu.chain", Node: node(1450, 1450), Want: `
pass
want: tunnel <= NIC - 50, Pods <= tunnel
got: tunnel <= NIC - 50, Pods <= tunnel
evidence: flannel.1: mtu 1450 through eth0 mtu 1500`},
		{What: "a tunnel of virtual machines", Problem: "mtu.chain", Node: &hosttest.Machine{Routes: []string{"eth0"}, Links: map[string]*hosttest.Link{
			"eth0": {MTU: 1500}, "cni0": {Kind: "bridge", MTU: 1500}, "veth1": {Kind: "veth", MTU: 1500, Master: "cni0"}, "vmbr1": {Kind: "bridge", MTU: 1450},
			"vxlan100": {Kind: "vxlan", MTU: 1450, Master: "vmbr1", VXLAN: &host.VXLAN{Port: 4789}},
		}}, Want: "skipped\nskipped: no VXLAN tunnel"},
		{What: "no tunnel", Problem: "mtu.chain", Node: &hosttest.Machine{Links: map[string]*hosttest.Link{"eth0": {MTU: 1500}}}, Want: `
skipped
skipped: no VXLAN tunnel`},
	})
}

// TestMTUChainKernelIPv6 checks that the kernel reports the address family of a tunnel.
func TestMTUChainKernelIPv6(t *testing.T) {
	h := checkstest.Scratch(t)
	for name, local := range map[string]string{"over4": "192.0.2.1", "over6": "2001:db8::1"} {
		checkstest.AddLink(t, &netlink.Vxlan{LinkAttrs: netlink.LinkAttrs{Name: name, MTU: 1400}, VxlanId: len(local), Port: 4789,
			SrcAddr: net.ParseIP(local)})
	}
	links, err := h.Links.List(t.Context())
	require.NoError(t, err)
	for _, l := range links {
		if l.VXLAN != nil && l.VXLAN.V6 != (l.Name == "over6") {
			t.Errorf("%s: IPv6 %t", l.Name, l.VXLAN.V6)
		}
	}
	if len(links) != 3 {
		t.Errorf("links: %+v", links)
	}
}

// TestPodMTUsKernel checks that the MTU in another namespace is read from here, and that an end in the same namespace is left out.
func TestPodMTUsKernel(t *testing.T) {
	h := checkstest.Scratch(t)
	node, err := netns.Open(t.Context(), fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
	require.NoError(t, err)
	defer node.Close()
	pod, err := netns.New(t.Context())
	require.NoError(t, err)
	defer pod.Close()
	require.NoError(t, hosttest.AddVeth(t.Context(), node, "veth1", pod, "eth0"))
	checkstest.AddLink(t, &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "veth2"}, PeerName: "veth3"})
	for _, mtu := range []int{1500, 1230} {
		checkstest.SetMTU(t, h, "veth1", mtu)
		got, err := h.Links.PodMTUs(t.Context())
		if want := map[string]int{"veth1": 1500}; err != nil || !maps.Equal(got, want) {
			t.Errorf("Pods' MTU: %v, %v; want %v", got, err, want)
		}
	}
	r := checkstest.On(t.Context(), t, h, checks.Run, "mtu.chain", "")
	defer func() { // as its remedy says
		checkstest.SetMTU(t, h, "veth1", 1500)
		if r := checkstest.On(t.Context(), t, h, checks.Run, "mtu.chain", ""); r.Verdict.String() != "skipped" {
			t.Errorf("after the remedy: %v: %s (%v)", r.Verdict, r.State.Got, r.Err)
		}
	}()
	if r.Verdict.String() != "warn" || r.State.Got != "the Pod of veth1 1500 > 1230" {
		t.Errorf("%v: %s (%v)", r.Verdict, r.State.Got, r.Err)
	}
}
