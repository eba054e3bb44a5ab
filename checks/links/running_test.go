package links_test

import (
	"context"
	"errors"
	"maps"
	"os/exec"
	"slices"
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
)

func TestAcceptRA(t *testing.T) {
	const all, gateway = "00000000000000000000000000000000 00 00000000000000000000000000000000 00 ",
		"fe800000000000000000000000000001 00000400 00000001 00000000 "
	node := func(flags, accept string) *hosttest.Machine {
		return checkstest.Node(map[string]string{"/proc/net/ipv6_route": all + gateway + flags + "     eth0\n" + all + gateway +
			"00200200       lo\n"},
			map[string]string{"net/ipv6/conf/eth0/forwarding": "1", "net/ipv6/conf/eth0/accept_ra": accept})
	}
	gone := node("00450003", "1")
	gone.Files["/proc/net/ipv6_route"] = all + gateway + "00450003     eth1\n" + gone.Files["/proc/net/ipv6_route"]
	halfGone := node("00450003", "1")
	delete(halfGone.Files, "/proc/sys/net/ipv6/conf/eth0/accept_ra")
	checkstest.RunOne(t, "accept-ra.forwarding", checks.Run, []checkstest.Case{
		{What: "another link was removed", Node: gone, Want: `
warn
want: router advertisements accepted for the default route
got: the default route of eth0 will expire
evidence: /proc/sys/net/ipv6/conf/eth0: forwarding 1, accept_ra 1` + "\nremedy: run `sysctl -w net.ipv6.conf.eth0.accept_ra=2` and add the sysctl to the policy"},
		{What: "removed between the reads", Node: halfGone, Want: `
pass
want: router advertisements accepted for the default route
got: router advertisements accepted for the default route`},
		{What: "the route will expire", Node: node("00450003", "1"), Want: `
warn
want: router advertisements accepted for the default route
got: the default route of eth0 will expire
evidence: /proc/sys/net/ipv6/conf/eth0: forwarding 1, accept_ra 1` + "\nremedy: run `sysctl -w net.ipv6.conf.eth0.accept_ra=2` and add the sysctl to the policy"},
		{What: "accept_ra is 2", Node: node("00450003", "2"), Want: `
pass
want: router advertisements accepted for the default route
got: router advertisements accepted for the default route
evidence: /proc/sys/net/ipv6/conf/eth0: forwarding 1, accept_ra 2`},
		{What: "networkd processes advertisements", Node: node("00000003", "0"), Want: `
pass
want: router advertisements accepted for the default route
got: router advertisements accepted for the default route`},
		{What: "no IPv6", Node: checkstest.Node(nil, nil), Want: "skipped\nskipped: this kernel does not support IPv6"},
	})
}

func TestCNILeftovers(t *testing.T) {
	const dir, flannel, calico = "/etc/cni/net.d/", `{"name":"cbr0","plugins":[{"type":"flannel"}]}`,
		`{"name":"k8s-pod-network","plugins":[{"type":"calico"}]}`
	node := func(files map[string]string, links map[string]*hosttest.Link) *hosttest.Machine {
		m := checkstest.Node(map[string]string{dir + "200-loopback.conf": `{"name":"lo","type":"loopback"}`,
			dir + "87-podman.conflist": `{"name":"podman","plugins":[{"type":"bridge"}]}`}, nil)
		maps.Copy(m.Files, files)
		m.Links = links
		return m
	}
	tunnel := func(port int) *hosttest.Link { return &hosttest.Link{Kind: "vxlan", VXLAN: &host.VXLAN{Port: port}} }
	const remedy = "\nremedy: remove the files and links of the CNI that is no longer used, then restart the node to remove its routes and rules"
	checkstest.RunOne(t, "cni.leftovers", checks.Run, []checkstest.Case{
		{What: "one CNI and example files", Node: node(map[string]string{dir + "10-flannel.conflist": flannel}, nil),
			Want: "pass\nwant: one CNI\ngot: one CNI"},
		{What: "Cilium chained to another", Node: node(map[string]string{
			dir + "05-cilium.conflist": `{"name":"aws-cni","plugins":[{"type":"aws-cni"},{"type":"cilium-cni"}]}`,
			dir + "10-aws.conflist":    `{"name":"aws-cni","plugins":[{"type":"aws-cni"}]}`}, nil),
			Want: "pass\nwant: one CNI\ngot: one CNI"},
		{What: "two CNIs", Node: node(map[string]string{dir + "10-calico.conflist": calico, dir + "20-flannel.conflist": flannel}, nil), Want: `
warn
want: one CNI
got: calico in 10-calico.conflist, flannel in 20-flannel.conflist
evidence: /etc/cni/net.d: the runtime uses the first: calico in 10-calico.conflist` + remedy},
		{What: "CRI-O's example sorts before the CNI", Node: node(map[string]string{dir + "10-crio-bridge.conflist": `{"name":"crio","plugins":[{"type":"bridge"}]}`,
			dir + "10-flannel.conflist": flannel}, nil), Want: `
warn
want: one CNI
got: crio in 10-crio-bridge.conflist, flannel in 10-flannel.conflist
evidence: /etc/cni/net.d: the runtime uses the first: crio in 10-crio-bridge.conflist` + remedy},
		{What: "Multus calls the others",
			Node: node(map[string]string{dir + "00-multus.conf": `{"name":"m","type":"multus"}`, dir + "10-calico.conflist": calico}, nil),
			Want: "pass\nwant: one CNI\ngot: one CNI"},
		{What: "two tunnels on one port",
			Node: node(nil, map[string]*hosttest.Link{"flannel.1": tunnel(8472), "cilium_vxlan": tunnel(8472), "vxlan9": tunnel(8472)}), Want: `
warn
want: one CNI
got: cilium_vxlan and flannel.1 on port 8472` + remedy},
		{What: "two tunnels of one CNI", Node: node(nil, map[string]*hosttest.Link{"flannel.1": tunnel(8472), "flannel-v6.1": tunnel(8472)}),
			Want: "pass\nwant: one CNI\ngot: one CNI"},
		{What: "no CNI", Node: checkstest.Node(nil, nil), Want: "skipped\nskipped: no CNI is installed yet"},
	})
}

func TestTCPChecksumErrors(t *testing.T) {
	const snmp = "Tcp: RtoMin InCsumErrors\nTcp: 200 "
	rising := func(h *host.Host) {
		h.Files = &checkstest.SecondRead{Files: h.Files, Name: "/proc/net/snmp", Then: snmp + "9\n"}
	}
	node := checkstest.Node(map[string]string{"/proc/net/snmp": snmp + "7\n"}, nil)
	checkstest.RunOne(t, "tcp.checksum-errors", checks.Run, []checkstest.Case{
		{What: "rising", Node: node, Host: rising, Want: `
warn
want: no wrong checksums now
got: InCsumErrors rising
evidence: /proc/net/snmp: Tcp InCsumErrors 9, 2 more in 100 ms` + "\nremedy: on the sending node, run `ethtool -K LINK tx-checksum-ip-generic off` for the tunnel's link; a link block in the policy keeps it off"},
		{What: "in the past", Node: node,
			Want: "pass\nwant: no wrong checksums now\ngot: no wrong checksums now\nevidence: /proc/net/snmp: Tcp InCsumErrors 7"},
		{What: "never", Node: checkstest.Node(map[string]string{"/proc/net/snmp": snmp + "0\n"}, nil),
			Want: "pass\nwant: no wrong checksums now\ngot: no wrong checksums now\nevidence: /proc/net/snmp: Tcp InCsumErrors 0"},
	})
}

func TestOverlayEntries(t *testing.T) {
	node := func(hops ...host.Hop) *hosttest.Machine {
		m := checkstest.Node(nil, nil)
		m.Hops = hops
		return m
	}
	whole := host.Hop{Link: "flannel.1", Gateway: "10.244.1.0", MAC: "0e:00:00:00:00:01", Remote: "192.0.2.1"}
	noNeighbour, noForwarding := whole, whole
	noNeighbour.Gateway, noNeighbour.MAC, noNeighbour.Remote = "10.244.2.0", "", ""
	noForwarding.Gateway, noForwarding.MAC, noForwarding.Remote = "10.244.3.0", "0e:00:00:00:00:03", ""
	recreated := node()
	recreated.Links = map[string]*hosttest.Link{"flannel.1": {Kind: "vxlan", VXLAN: &host.VXLAN{}}}
	flannel := func(cni, mtu string, links ...string) *hosttest.Machine {
		m := checkstest.Node(map[string]string{
			"/run/flannel/subnet.env":                                      "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.1.1/24\nFLANNEL_MTU=" + mtu + "\nFLANNEL_IPMASQ=true\n",
			"/var/lib/rancher/k3s/agent/etc/cni/net.d/10-flannel.conflist": `{"name": "cbr0", "plugins": [{"type": "` + cni + `"}]}`,
		}, nil)
		m.Links = map[string]*hosttest.Link{"eth0": {MTU: 1500}, "cni0": {Kind: "bridge", MTU: 1450}, "other0": {Kind: "vxlan", MTU: 1500}}
		for _, name := range links {
			m.Links[name] = &hosttest.Link{MTU: 1420}
		}
		return m
	}
	twoCards := flannel("flannel", "1450")
	twoCards.Links["eth1"] = &hosttest.Link{MTU: 1450}
	const skipped = "skipped\nskipped: no gateway routes over a VXLAN link with learning off"
	checkstest.RunOne(t, "overlay.entries", checks.Run, []checkstest.Case{
		{What: "flannel.1 is missing", Node: flannel("flannel", "1450"), Want: `
warn
want: a neighbour and a forwarding entry for each gateway
got: flannel's VXLAN link is missing: /run/flannel/subnet.env has its MTU 1450, for eth0, and no link is named flannel*
remedy: restart the CNI's agent on this node to restore the entries and routes`},
		{What: "flannel's WireGuard link is missing", Node: flannel("flannel", "1420"), Want: `
warn
want: a neighbour and a forwarding entry for each gateway
got: flannel's WireGuard link is missing: /run/flannel/subnet.env has its MTU 1420, for eth0, and no link is named flannel*
remedy: restart the CNI's agent on this node to restore the entries and routes`},
		{What: "flannel with WireGuard", Node: flannel("flannel", "1420", "flannel-wg"), Want: skipped},
		{What: "flannel with host-gw", Node: flannel("flannel", "1500"), Want: skipped},
		{What: "flannel with host-gw over the second of two cards", Node: twoCards, Want: skipped},
		{What: "flannel with IPsec", Node: flannel("flannel", "1423"), Want: skipped},
		{What: "another CNI after flannel", Node: flannel("calico", "1450"), Want: skipped},
		{What: "one of each is missing", Node: node(whole, noNeighbour, noForwarding), Want: `
warn
want: a neighbour and a forwarding entry for each gateway
got: 2 of 3 gateways lack an entry
evidence: flannel.1: via 10.244.2.0: no neighbour entry
evidence: flannel.1: via 10.244.3.0: no forwarding entry for 0e:00:00:00:00:03
remedy: restart the CNI's agent on this node to restore the entries and routes`},
		{What: "complete", Node: node(whole), Want: "pass\nwant: a neighbour and a forwarding entry for each gateway\n" +
			"got: a neighbour and a forwarding entry for each gateway"},
		{What: "added in the meantime", Node: node(noNeighbour), Host: func(h *host.Host) { h.Links = &agent{h.Links, 3} },
			Want: "pass\nwant: a neighbour and a forwarding entry for each gateway\ngot: a neighbour and a forwarding entry for each gateway"},
		{What: "recreated without routes", Node: recreated, Host: func(h *host.Host) {
			h.Memory = &host.Memory{Tunnels: map[string]host.Tunnel{"flannel.1": {Index: -1, Gateways: 2}, "gone": {Index: -2, Gateways: 1}}}
		}, Want: `
warn
want: a neighbour and a forwarding entry for each gateway
got: flannel.1 was recreated without its routes through 2 gateways
remedy: restart the CNI's agent on this node to restore the entries and routes`},
		{What: "no overlay", Node: node(), Want: "skipped\nskipped: no gateway routes over a VXLAN link with learning off"},
	})
}

// agent adds the missing entries at the given read.
type agent struct {
	host.Links
	reads int
}

func (a *agent) Hops(ctx context.Context) ([]host.Hop, error) {
	hops, err := a.Links.Hops(ctx)
	if a.reads--; a.reads == 0 {
		for i := range hops {
			hops[i].MAC, hops[i].Remote = "0e:00:00:00:00:02", "192.0.2.2"
		}
	}
	if a.reads < 0 {
		return nil, errors.New("read again although nothing was missing")
	}
	return hops, err
}

// TestOverlayEntriesKernel creates a VXLAN link like flannel.1 and removes each of its entries.
func TestOverlayEntriesKernel(t *testing.T) {
	h := checkstest.Scratch(t)
	checkstest.PodNetwork(t)
	run := func(command string) {
		t.Helper()
		if out, err := exec.Command("sh", "-ec", command).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
	}
	verdict := func(what, want string) {
		t.Helper()
		r := checkstest.On(t.Context(), t, h, checks.Run, "overlay.entries", "")
		got := r.Verdict.String()
		for _, e := range r.State.Evidence {
			got += "; " + e.Text
		}
		assert.True(t, r.Err == nil && got == want, "%s: %s (%v), want %s", what, got, r.Err, want)
	}
	const mac = "0e:00:00:00:00:01"
	run(`ip link add flannel.7 type vxlan id 7 dstport 8477 dev nic0 nolearning
		ip link set flannel.7 up
		ip address add 10.244.0.0/32 dev flannel.7`)
	verdict("no routes yet", "skipped")
	run("ip route add 10.244.1.0/24 via 10.244.1.0 dev flannel.7 onlink; ip route add 10.244.9.0/24 dev flannel.7")
	verdict("the route alone", "warn; via 10.244.1.0: no neighbour entry")
	run("ip neigh add 10.244.1.0 lladdr " + mac + " dev flannel.7 nud permanent")
	verdict("no forwarding entry", "warn; via 10.244.1.0: no forwarding entry for "+mac)
	run("bridge fdb add " + mac + " dev flannel.7 dst 192.0.2.7")
	verdict("complete", "pass")
	foreign, err := h.Links.Foreign(t.Context())
	require.NoError(t, err)
	for _, want := range []string{"neighbour 10.244.1.0 lladdr " + mac + " dev flannel.7", "fdb " + mac + " dst 192.0.2.7 dev flannel.7"} {
		if !slices.Contains(foreign, host.Foreign{Text: want, Link: "flannel.7"}) {
			t.Errorf("%s is not among the foreign objects: %+v", want, foreign)
		}
	}
	run("bridge fdb del " + mac + " dev flannel.7; bridge fdb append 00:00:00:00:00:00 dev flannel.7 dst 192.0.2.8")
	verdict("an entry for all others", "pass")
	run("ip link add learns type vxlan id 2 dstport 4789 dev nic0; ip link set learns up; ip route add 10.245.1.0/24 via 10.245.1.1 dev " +
		"learns onlink")
	verdict("a link that learns", "pass")

	run("ip link del learns")
	h.Memory = &host.Memory{}
	verdict("remembered", "pass")
	run("ip route flush dev flannel.7")
	verdict("all other nodes left", "skipped")
	recreate := func() {
		run(`ip link del flannel.7
			ip link add flannel.7 type vxlan id 7 dstport 8477 dev nic0 nolearning
			ip link set flannel.7 up`)
	}
	addEntries := func() {
		run(`ip neigh add 10.244.1.0 lladdr ` + mac + ` dev flannel.7 nud permanent
			bridge fdb add ` + mac + ` dev flannel.7 dst 192.0.2.7
			ip route add 10.244.1.0/24 via 10.244.1.0 dev flannel.7 onlink`)
	}
	recreate()
	verdict("recreated without another node", "skipped")
	addEntries()
	verdict("another node again", "pass")
	recreate()
	verdict("recreated without routes", "warn")
	addEntries()
	verdict("with its routes", "pass")
	run("ip link del flannel.7")
	verdict("removed", "skipped")
}
