package links_test

import (
	"maps"
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

func TestAcceptRA(t *testing.T) {
	const all, gateway = "00000000000000000000000000000000 00 00000000000000000000000000000000 00 ", "fe800000000000000000000000000001 00000400 00000001 00000000 "
	node := func(flags, accept string) *hosttest.Machine {
		return checkstest.Node(map[string]string{"/proc/net/ipv6_route": all + gateway + flags + "     eth0\n" + all + gateway + "00200200       lo\n"},
			map[string]string{"net/ipv6/conf/eth0/forwarding": "1", "net/ipv6/conf/eth0/accept_ra": accept})
	}
	checkstest.RunOne(t, "accept-ra.forwarding", checks.Run, []checkstest.Case{
		{What: "it will run out", Node: node("00450003", "1"), Want: `
warn
want: advertisements taken where the route needs them
got: the default route of eth0 will run out
evidence: /proc/sys/net/ipv6/conf/eth0: forwarding 1, accept_ra 1
remedy: run: sysctl -w net.ipv6.conf.eth0.accept_ra=2; and put it into the policy`},
		{What: "taken all the same", Node: node("00450003", "2"), Want: `
pass
want: advertisements taken where the route needs them
got: advertisements taken where the route needs them
evidence: /proc/sys/net/ipv6/conf/eth0: forwarding 1, accept_ra 2`},
		{What: "networkd takes them", Node: node("00000003", "0"), Want: `
pass
want: advertisements taken where the route needs them
got: advertisements taken where the route needs them`},
		{What: "no IPv6", Node: checkstest.Node(nil, nil), Want: "skip\nskip: this kernel has no IPv6"},
	})
}

func TestSrcValidMark(t *testing.T) {
	node := func(link, value string) *hosttest.Machine {
		m := checkstest.Node(nil, map[string]string{"net/ipv4/conf/all/src_valid_mark": value})
		m.Links = map[string]*hosttest.Link{link: {Kind: "veth"}}
		return m
	}
	checkstest.RunOne(t, "src-valid-mark.cilium", checks.Run, []checkstest.Case{
		{What: "Tailscale beside Cilium", Node: node("lxc12ab", "1"), Want: `
warn
want: src_valid_mark=0
got: src_valid_mark=1
evidence: /proc/sys/net/ipv4/conf/all/src_valid_mark: 1
remedy: run: sysctl -w net.ipv4.conf.all.src_valid_mark=0; and put it into the policy`},
		{What: "Cilium alone", Node: node("lxc12ab", "0"), Want: `
pass
want: src_valid_mark=0
got: src_valid_mark=0
evidence: /proc/sys/net/ipv4/conf/all/src_valid_mark: 0`},
		{What: "Tailscale alone", Node: node("eth0", "1"), Want: "skip\nskip: no links of Cilium"},
	})
}

func TestCNILeftovers(t *testing.T) {
	const dir, flannel, calico = "/etc/cni/net.d/", `{"name":"cbr0","plugins":[{"type":"flannel"}]}`, `{"name":"k8s-pod-network","plugins":[{"type":"calico"}]}`
	node := func(files map[string]string, links map[string]*hosttest.Link) *hosttest.Machine {
		m := checkstest.Node(map[string]string{dir + "200-loopback.conf": `{"name":"lo","type":"loopback"}`, dir + "87-podman.conflist": `{"name":"podman","plugins":[{"type":"bridge"}]}`}, nil)
		maps.Copy(m.Files, files)
		m.Links = links
		return m
	}
	tunnel := func(port int) *hosttest.Link { return &hosttest.Link{Kind: "vxlan", VXLAN: &host.VXLAN{Port: port}} }
	const remedy = "\nremedy: remove the file and the links of the CNI that is gone, and restart the node: its routes and rules go too"
	checkstest.RunOne(t, "cni.leftovers", checks.Run, []checkstest.Case{
		{What: "one, beside examples", Node: node(map[string]string{dir + "10-flannel.conflist": flannel}, nil), Want: "pass\nwant: one CNI\ngot: one CNI"},
		{What: "two", Node: node(map[string]string{dir + "10-calico.conflist": calico, dir + "20-flannel.conflist": flannel}, nil), Want: `
warn
want: one CNI
got: calico in 10-calico.conflist, flannel in 20-flannel.conflist
evidence: /etc/cni/net.d: the runtime uses the first: calico in 10-calico.conflist` + remedy},
		{What: "Multus calls the others", Node: node(map[string]string{dir + "00-multus.conf": `{"name":"m","type":"multus"}`, dir + "10-calico.conflist": calico}, nil),
			Want: "pass\nwant: one CNI\ngot: one CNI"},
		{What: "two tunnels on one port", Node: node(nil, map[string]*hosttest.Link{"flannel.1": tunnel(8472), "cilium_vxlan": tunnel(8472), "vxlan9": tunnel(8472)}), Want: `
warn
want: one CNI
got: cilium_vxlan and flannel.1 on port 8472` + remedy},
		{What: "two tunnels of one CNI", Node: node(nil, map[string]*hosttest.Link{"flannel.1": tunnel(8472), "flannel-v6.1": tunnel(8472)}), Want: "pass\nwant: one CNI\ngot: one CNI"},
		{What: "none", Node: checkstest.Node(nil, nil), Want: "skip\nskip: no CNI is here yet"},
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
want: no wrong checksum now
got: InCsumErrors rising
evidence: /proc/net/snmp: Tcp InCsumErrors 7, then 9
remedy: on the node that sends: ethtool -K LINK tx-checksum-ip-generic off, of the tunnel's link; a link block of the policy keeps it so`},
		{What: "long ago", Node: node, Want: "pass\nwant: no wrong checksum now\ngot: no wrong checksum now\nevidence: /proc/net/snmp: Tcp InCsumErrors 7, then 7"},
		{What: "never", Node: checkstest.Node(map[string]string{"/proc/net/snmp": snmp + "0\n"}, nil), Want: "pass\nwant: no wrong checksum now\ngot: no wrong checksum now"},
	})
}
