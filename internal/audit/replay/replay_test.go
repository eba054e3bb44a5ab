package replay_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"nodegate/internal/assert"
	"nodegate/internal/audit/replay"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/host/netns"
	"nodegate/internal/host/replica"
	"nodegate/internal/require"
	"nodegate/internal/ruleset"
)

// world is a node with three Pods on a bridge, of which two are known, kube-proxy's rules for two Services, and a CNI that masquerades.
const world = `
echo 1 >/proc/sys/net/ipv4/ip_forward; echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad
ip link add eth0 type veth peer name e1 netns $other; ip addr add 192.168.50.1/24 dev eth0; ip link set eth0 up
ip link add cni0 type bridge; ip addr add 10.244.0.1/24 dev cni0; ip link set cni0 up
for p in 1 2 3; do ip link add veth$p type veth peer name p$p netns $other; ip link set veth$p master cni0 up; bridge link set dev veth$p hairpin on; done
for l in e1 p1 p2 p3; do nsenter --net=$other ip link set $l up; done; for i in $(seq 1000); do ip link show up | grep 'cni0:\|@' | grep -vq 'state UP' || break; sleep 0.01; done
ip route add default via 192.168.50.254; ip route add 10.244.1.0/24 via 192.168.50.2; ip route add local default dev lo table 111
iptables-nft-restore <<'X'
*nat
:KUBE-SERVICES - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-SVC-AAAAAAAAAAAAAAAA - [0:0]
:KUBE-SEP-AAAAAAAAAAAAAAA2 - [0:0]
:KUBE-SVC-BBBBBBBBBBBBBBBB - [0:0]
:KUBE-SEP-BBBBBBBBBBBBBBB2 - [0:0]
:FLANNEL-POSTRTG - [0:0]
:CNI-HOSTPORT-DNAT - [0:0]
:CNI-DN-1 - [0:0]
-A PREROUTING -j KUBE-SERVICES
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A CNI-HOSTPORT-DNAT -p tcp -m multiport --dports 8081 -j CNI-DN-1
-A CNI-DN-1 -p tcp -m tcp --dport 8081 -j DNAT --to-destination 10.244.0.9:8080
-A OUTPUT -j KUBE-SERVICES
-A POSTROUTING -j KUBE-POSTROUTING
-A POSTROUTING -j FLANNEL-POSTRTG
-A FLANNEL-POSTRTG -s 10.244.0.0/16 ! -d 10.244.0.0/16 -j MASQUERADE
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0
-A KUBE-POSTROUTING -j MASQUERADE
-A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-AAAAAAAAAAAAAAAA
-A KUBE-SERVICES -d 10.96.0.2/32 -p udp -m udp --dport 53 -j KUBE-SVC-BBBBBBBBBBBBBBBB
-A KUBE-SERVICES -d 192.168.50.1/32 -p tcp -m tcp --dport 30080 -j KUBE-SVC-AAAAAAAAAAAAAAAA
-A KUBE-SVC-AAAAAAAAAAAAAAAA ! -s 10.244.0.0/16 -j KUBE-MARK-MASQ
-A KUBE-SVC-AAAAAAAAAAAAAAAA -j KUBE-SEP-AAAAAAAAAAAAAAA2
-A KUBE-SEP-AAAAAAAAAAAAAAA2 -s 10.244.0.4/32 -j KUBE-MARK-MASQ
-A KUBE-SEP-AAAAAAAAAAAAAAA2 -p tcp -m tcp -j DNAT --to-destination 10.244.0.4:8080
-A KUBE-SVC-BBBBBBBBBBBBBBBB -j KUBE-SEP-BBBBBBBBBBBBBBB2
-A KUBE-SEP-BBBBBBBBBBBBBBB2 -p udp -m udp -j DNAT --to-destination 10.244.1.4:53
COMMIT
X
`

const tunnel = `ip link add wg0 type veth peer name w1 netns $other; ip link set wg0 arp off; ip link set wg0 up; nsenter --net=$other ip link set w1 up
`

const severalDrop = `iptables-nft -P FORWARD DROP; iptables-nft -N reject; iptables-nft -A reject -p tcp -j REJECT --reject-with tcp-reset
iptables-nft -A reject -p udp -j REJECT; iptables-nft -A reject -j REJECT; iptables-nft -A FORWARD -i cni0 -g reject
`

const localDNS = `ip link add nodelocaldns type bridge; ip link set nodelocaldns up; ip addr add 10.96.0.2/32 dev nodelocaldns
iptables-nft -t raw -A PREROUTING -d 10.96.0.2 -p udp --dport 53 -j NOTRACK; iptables-nft -t raw -A OUTPUT -d 10.96.0.2 -p udp --dport 53 -j NOTRACK
iptables-nft -t raw -A OUTPUT -s 10.96.0.2 -p udp --sport 53 -j NOTRACK
`

func cluster() *replay.Cluster {
	at := netip.MustParseAddrPort
	pod := func(a string) replica.Pod { return replica.Pod{Addresses: []netip.Addr{netip.MustParseAddr(a)}} }
	return &replay.Cluster{Pods: []replica.Pod{pod("10.244.0.4"), pod("10.244.0.9")}, Servers: []netip.AddrPort{at("192.168.50.2:6443")},
		Outside:   []netip.AddrPort{at("203.0.113.7:443")},
		HostPorts: []ruleset.HostPort{{Protocol: unix.IPPROTO_TCP, At: at("192.168.50.1:8081"), To: at("10.244.0.9:8080")}}, Services: []replay.Service{
			{Name: "web", Protocol: unix.IPPROTO_TCP, Addresses: []netip.AddrPort{at("10.96.0.1:80")}, External: []netip.AddrPort{at("192.168.50.1:30080")},
				Endpoints: []netip.AddrPort{at("10.244.0.4:8080")}, Here: []netip.AddrPort{at("10.244.0.4:8080")}},
			{Name: "dns", Protocol: unix.IPPROTO_UDP, Addresses: []netip.AddrPort{at("10.96.0.2:53")}, Endpoints: []netip.AddrPort{at("10.244.1.4:53")}},
		}}
}

// TestReplay: what each change of the node loses, and the part that is named.
func TestReplay(t *testing.T) {
	hosttest.NeedRoot(t)
	hosttest.NeedBridgeNetfilter(t)
	for _, program := range []string{"ip", "tc", "bridge", "nft", "iptables-nft-restore", "iptables-legacy"} {
		hosttest.NeedProgram(t, program)
	}
	for _, c := range []struct {
		name, change string
		queue        bool   // a program takes packets from queue 7
		dns          bool   // a program listens at the address of the Service dns
		lost         string // one of the flows
		passes       string // another one
		part         string
		stray        string
		untried      string
	}{
		{name: "healthy"},
		{name: "a rule drops", change: "iptables-nft -I FORWARD -i cni0 -o eth0 -j DROP", lost: "10.244.0.9 to dns 10.96.0.2:53",
			passes: "10.244.0.9 to web 10.96.0.1:80", part: "nft family 2 table filter chain FORWARD rule 1 "},
		{name: "a rule drops replies", change: "iptables-nft -I FORWARD -p udp --sport 53 -j DROP", lost: "10.244.0.9 to dns 10.96.0.2:53",
			passes: "node to dns 10.96.0.2:53", part: "nft family 2 table filter chain FORWARD rule 1 "},
		{name: "a policy drops", change: "nft 'table inet f { chain c { type filter hook forward priority 0; policy drop; ct state established accept; }; }'",
			lost: "10.244.1.4 to an endpoint of web 10.244.0.4:8080", passes: "node to web 10.96.0.1:80", part: "nft family 1 table f: policy of chain c"},
		{name: "the legacy backend drops", change: "iptables-legacy -N X; iptables-legacy -A FORWARD -j X; iptables-legacy -A X -s 1.2.3.4 -j DROP; iptables-legacy -A X -o eth0 -j DROP",
			lost: "10.244.0.9 to the outside 203.0.113.7:443", passes: "10.244.0.9 to web 10.96.0.1:80", part: "legacy family 2 table filter chain X rule 2"},
		{name: "each of several rules would drop", change: severalDrop, lost: "10.244.0.9 to the outside 203.0.113.7:443",
			passes: "node to web 10.96.0.1:80", part: "nft family 2 table filter chain reject rule 1 "},
		{name: "another one is the first for UDP", change: severalDrop, lost: "10.244.0.9 to dns 10.96.0.2:53",
			passes: "node to dns 10.96.0.2:53", part: "nft family 2 table filter chain reject rule 2 "},
		{name: "half is dropped", change: "iptables-nft -I FORWARD -p udp -m statistic --mode random --probability 0.5 -j DROP",
			lost: "10.244.0.9 to dns 10.96.0.2:53", passes: "node to dns 10.96.0.2:53", part: "nft family 2 table filter chain FORWARD rule 1 "},
		{name: "a mark is lost", change: "iptables-nft -t mangle -I FORWARD -s 1.2.3.4 -j DROP; iptables-nft -t mangle -A FORWARD -j MARK --set-mark 1",
			lost: "10.244.0.4 to web 10.96.0.1:80", passes: "10.244.0.9 to web 10.96.0.1:80", part: "nft family 2 table mangle chain FORWARD rule 2 "},
		{name: "a redirect", change: "iptables-nft -t nat -I PREROUTING -p tcp --dport 80 -j REDIRECT --to-ports 3128",
			lost: "10.244.0.9 to web 10.96.0.1:80", passes: "node to web 10.96.0.1:80", part: "nft family 2 table nat chain PREROUTING rule 1 "},
		{name: "a routing rule", change: "ip rule add pref 100 from 10.244.0.0/16 lookup 99; ip route add blackhole default table 99",
			lost: "10.244.0.9 to dns 10.96.0.2:53", passes: "node to dns 10.96.0.2:53", part: "routing rule 100, table 99"},
		{name: "a tunnel takes the Pods", change: tunnel + "ip route add 10.244.0.0/16 dev wg0 table 52; ip rule add pref 5270 lookup 52",
			lost: "node to an endpoint of web 10.244.0.4:8080", passes: "node to the outside 203.0.113.7:443", part: "routing rule 5270, table 52"},
		{name: "a tunnel takes another node's Pods", change: tunnel + "ip route add 10.244.1.0/24 dev wg0 table 52; ip rule add pref 5270 lookup 52",
			lost: "10.244.0.9 to dns 10.96.0.2:53", passes: "10.244.0.9 to web 10.96.0.1:80", part: "routing rule 5270, table 52"},
		{name: "a tunnel to the outside", change: tunnel + "ip route add 203.0.113.0/24 dev wg0"},
		{name: "a route refuses", change: "ip route replace blackhole 10.244.1.0/24", lost: "node to dns 10.96.0.2:53",
			passes: "node to the outside 203.0.113.7:443", part: "route to 10.244.1.0/24, table 254"},
		{name: "a next hop refuses", change: "ip nexthop add id 23 blackhole; ip route replace 10.244.1.0/24 nhid 23",
			lost: "node to dns 10.96.0.2:53", passes: "node to the outside 203.0.113.7:443", part: "route to 10.244.1.0/24, table 254"},
		{name: "next hops by number", change: "ip nexthop add id 3 via 192.168.50.2 dev eth0; ip nexthop add id 4 via 192.168.50.254 dev eth0; " +
			"ip nexthop add id 1 group 4; ip route replace 10.244.1.0/24 nhid 3; ip route replace default nhid 1"},
		{name: "a gateway is silent", change: "ip route replace default via 192.168.50.9; ip neigh replace 192.168.50.9 dev eth0 nud failed",
			lost: "10.244.0.9 to the outside 203.0.113.7:443", passes: "10.244.0.9 to dns 10.96.0.2:53", part: "next hop 192.168.50.9 on eth0"},
		{name: "a route lacks its gateway", change: "ip route replace 10.244.1.0/24 dev eth0; ip neigh replace 10.244.1.4 dev eth0 nud failed",
			lost: "10.244.0.9 to dns 10.96.0.2:53", passes: "10.244.0.9 to web 10.96.0.1:80", part: "next hop 10.244.1.4 on eth0"},
		{name: "a machine that is no gateway is silent", change: "ip neigh replace 192.168.50.9 dev eth0 nud failed"},
		{name: "an address asks by a second veth", change: "ip link add eth1 type veth peer name e2 netns $other; ip addr add 192.168.60.1/24 dev eth1; " +
			"ip link set eth1 up; nsenter --net=$other ip link set e2 up; ip neigh replace 203.0.113.7 lladdr 02:00:00:00:00:02 dev eth1 nud stale"},
		{name: "a second uplink has a table of its own", change: "ip link add eth1 type veth peer name e2 netns $other; ip addr add 192.168.60.1/24 dev eth1; " +
			"ip link set eth1 up; nsenter --net=$other ip link set e2 up; ip route add default via 192.168.60.254 dev eth1 table 101; " +
			"ip rule add pref 101 from 192.168.60.1 lookup 101"},
		{name: "a second uplink has no carrier", change: "ip link add eth1 type veth peer name e2 netns $other; ip addr add 192.168.60.1/24 dev eth1; " +
			"ip link set eth1 up; echo 1 >/proc/sys/net/ipv4/conf/eth1/ignore_routes_with_linkdown; ip route del default; " +
			"ip route add default via 192.168.60.254 dev eth1 metric 50; ip route add default via 192.168.50.254 metric 200"},
		{name: "a veth leads to another node", change: "ip link add eth1 type veth peer name e2 netns $other; ip addr add 10.4.0.1/24 dev eth1; " +
			"ip link set eth1 up; nsenter --net=$other ip link set e2 up; ip route replace 10.244.1.0/24 via 10.4.0.2; " +
			"ip neigh replace 10.4.0.2 lladdr 02:00:00:00:00:04 dev eth1 nud stale"},
		{name: "a VPN halves the default route", change: tunnel + "ip route add 0.0.0.0/1 dev wg0; ip route add 128.0.0.0/1 dev wg0",
			lost: "203.0.113.7 to web 192.168.50.1:30080", passes: "10.244.0.9 to web 10.96.0.1:80", part: "route to 128.0.0.0/1, table 254"},
		{name: "the Pods' gateway is gone", change: "ip addr del 10.244.0.1/24 dev cni0", lost: "node to an endpoint of web 10.244.0.4:8080",
			passes: "node to the outside 203.0.113.7:443", stray: "cni0 has no IPv4 address, which is the gateway of its Pods"},
		{name: "the Pods' bridge has no IPv6", change: "echo 1 >/proc/sys/net/ipv6/conf/cni0/disable_ipv6",
			stray: "net.ipv6.conf.cni0.disable_ipv6 = 1 keeps IPv6 from its Pods"},
		{name: "a second network's bridge", change: "ip link add caliabc type veth peer name c1 netns $other; ip link set caliabc up; ip addr del 10.244.0.1/24 dev cni0",
			lost: "node to an endpoint of web 10.244.0.4:8080", passes: "node to the outside 203.0.113.7:443"},
		{name: "a link does not forward", change: "echo 0 >/proc/sys/net/ipv4/conf/cni0/forwarding", lost: "10.244.0.9 to dns 10.96.0.2:53",
			passes: "node to dns 10.96.0.2:53", part: "net.ipv4.conf.cni0.forwarding"},
		{name: "a group of links", change: "ip link set cni0 group 42; iptables-nft -I FORWARD -m devgroup --src-group 42 -o eth0 -j DROP",
			lost: "10.244.0.9 to dns 10.96.0.2:53", passes: "node to dns 10.96.0.2:53", part: "nft family 2 table filter chain FORWARD rule 1 "},
		{name: "another source", change: "iptables-nft -t nat -I POSTROUTING -s 10.244.0.0/16 -o eth0 -j SNAT --to-source 192.168.50.77",
			lost: "10.244.0.9 to dns 10.96.0.2:53", passes: "node to dns 10.96.0.2:53", part: "nft family 2 table nat chain POSTROUTING rule 1 "},
		{name: "no masquerading", change: "iptables-nft -t nat -F FLANNEL-POSTRTG", lost: "10.244.0.9 to the outside 203.0.113.7:443",
			passes: "10.244.0.9 to dns 10.96.0.2:53"},
		{name: "NodeLocal DNSCache runs", change: localDNS, dns: true},
		{name: "NodeLocal DNSCache is gone", change: localDNS, lost: "10.244.0.9 to dns 10.96.0.2:53", passes: "10.244.0.9 to web 10.96.0.1:80",
			part: "nft family 2 table raw chain PREROUTING rule 1 "},
		{name: "the gateway's hardware address is allowed", change: "ip neigh replace 192.168.50.254 lladdr 02:00:00:00:00:fe dev eth0 nud stale; " +
			"iptables-nft -A FORWARD -i eth0 -m mac ! --mac-source 02:00:00:00:00:fe -j DROP"},
		{name: "the uplink is a veth of a bridge", change: "ip addr del 192.168.50.1/24 dev eth0; ip link add br0 type bridge; ip link set eth0 master br0; " +
			"ip link set br0 up; ip addr add 192.168.50.1/24 dev br0; ip route replace default via 192.168.50.254; ip route replace 10.244.1.0/24 via 192.168.50.2; " +
			"ip link add vm1 type veth peer name v1 netns $other; ip link set vm1 master br0 up; nsenter --net=$other ip link set v1 up; " +
			"ip neigh replace 192.168.50.254 lladdr 02:00:00:00:00:fe dev br0 nud stale; bridge fdb replace 02:00:00:00:00:fe dev eth0 master dynamic"},
		{name: "portmap's chain is empty", change: "iptables-nft -t nat -F CNI-HOSTPORT-DNAT; iptables-nft -A INPUT -p tcp --dport 8081 -j DROP",
			lost: "203.0.113.7 to hostPort 192.168.50.1:8081", passes: "203.0.113.7 to web 192.168.50.1:30080"},
		{name: "another Pod has the hostPort", change: "iptables-nft -t nat -I CNI-HOSTPORT-DNAT -p tcp --dport 8081 -j DNAT --to-destination 10.244.0.4:8080",
			lost: "203.0.113.7 to hostPort 192.168.50.1:8081", passes: "203.0.113.7 to web 192.168.50.1:30080"},
		{name: "a hostPort is closed", change: "iptables-nft -t mangle -I PREROUTING -p tcp --dport 8081 -j DROP",
			lost: "203.0.113.7 to hostPort 192.168.50.1:8081", passes: "203.0.113.7 to web 192.168.50.1:30080", part: "nft family 2 table mangle chain PREROUTING rule 1 "},
		{name: "a queue that no program reads", change: "iptables-nft -I FORWARD -j NFQUEUE --queue-num 7", lost: "10.244.0.9 to dns 10.96.0.2:53",
			passes: "node to web 10.96.0.1:80", part: "nft family 2 table filter chain FORWARD rule 1 "},
		{name: "a queue that a program reads", change: "iptables-nft -I FORWARD -j NFQUEUE --queue-num 7", queue: true},
		{name: "a filter redirects to a link that is down", change: "ip link add ifb0 type ifb; tc qdisc add dev eth0 handle ffff: ingress; " +
			"for a in 1.2.3.4/32 10.244.1.4/32; do tc filter add dev eth0 parent ffff: protocol ip pref 7 u32 match ip src $a action mirred egress redirect dev ifb0; done",
			lost: "10.244.0.9 to dns 10.96.0.2:53", passes: "10.244.0.9 to the outside 203.0.113.7:443", part: "tc filter dev eth0 ingress pref 7"},
		{name: "shapers, and copies of packets", change: tunnel + "ip link add ifb0 type ifb; ip link set ifb0 up; tc qdisc add dev ifb0 root tbf rate 1mbit burst 5k latency 25ms; " +
			"tc qdisc add dev eth0 root handle 1: htb default 10; tc class add dev eth0 parent 1: classid 1:10 htb rate 1mbit; for l in eth0 wg0; do tc qdisc add dev $l ingress; done; " +
			"tc filter add dev eth0 ingress pref 1 u32 match u32 0 0 action mirred egress redirect dev ifb0; " +
			"tc filter add dev wg0 ingress pref 2 u32 match u32 0 0 action mirred egress mirror dev eth0"},
		{name: "shapers are left of a test", change: "tc qdisc add dev eth0 root tbf rate 1kbit burst 32kbit latency 400ms; " +
			"tc qdisc add dev cni0 root handle 1: htb default 2; tc class add dev cni0 parent 1: classid 1:2 htb rate 9kbit",
			untried: "tbf of tc on eth0, which may delay or drop packets (`tc qdisc show dev eth0`)\n" +
				"htb of tc on cni0, which may delay or drop packets (`tc qdisc show dev cni0`)"},
		{name: "a program of eBPF", change: "tc qdisc add dev eth0 ingress; tc filter add dev eth0 ingress bpf bytecode '1,6 0 0 4294967295,'",
			untried: "the eBPF program of eth0"},
		{name: "another node is silent", change: "ip link add flannel.1 type vxlan id 1 local 192.168.50.1 dstport 8472 nolearning; ip link set flannel.1 up; " +
			"bridge fdb append 9e:00:00:00:00:02 dev flannel.1 dst 192.168.50.77; ip neigh replace 192.168.50.77 dev eth0 nud failed",
			untried: "Pods of the node 192.168.50.77, which does not answer (`bridge fdb`)"},
		{name: "IPsec blocks", change: "ip xfrm policy add src 10.244.1.0/24 dst 10.244.0.0/16 dir fwd action block; ip xfrm policy add src ::/0 dst ::/0 dir out",
			lost: "10.244.0.9 to dns 10.96.0.2:53", passes: "10.244.0.9 to the outside 203.0.113.7:443",
			part: "ip xfrm policy src 10.244.1.0/24 dst 10.244.0.0/16 dir fwd block"},
		{name: "IPsec has no association", change: "ip xfrm policy add src 0.0.0.0/0 dst 10.244.1.0/24 dir out priority 1 tmpl src 192.168.50.1 dst 192.168.50.2 proto esp mode tunnel",
			lost: "10.244.0.9 to dns 10.96.0.2:53", passes: "10.244.0.9 to the outside 203.0.113.7:443",
			part: "ip xfrm policy src 0.0.0.0/0 dst 10.244.1.0/24 dir out no security association"},
		{name: "IPsec encrypts", change: "ip xfrm state allocspi src 192.168.50.1 dst 192.168.50.2 proto esp min 256 max 512 >/dev/null; " +
			"ip xfrm policy add src 0.0.0.0/0 dst 10.244.1.0/24 dir out priority 1 tmpl src 192.168.50.1 dst 192.168.50.2 proto esp mode tunnel; " +
			"ip xfrm policy add src 10.244.0.0/16 dst 10.244.1.0/24 dir out priority 2 action block"},
		{name: "a macvlan takes all packets", change: "ip link add m0 link eth0 type macvlan mode passthru",
			stray: "eth0 gives all packets to m0, a macvlan in passthru mode"},
		{name: "a list of other addresses", change: "nft 'table inet f { set s { type ipv4_addr; elements = { 45.1.2.3 }; }; chain c { type filter hook prerouting priority -150; ip saddr @s drop; }; }'"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
			t.Cleanup(cancel)
			var spaces []*netns.Namespace
			for range 2 {
				n, err := netns.New(ctx)
				require.NoError(t, err)
				t.Cleanup(n.Close)
				spaces = append(spaces, n)
			}
			lock := t.TempDir() + "/lock"
			require.NoError(t, spaces[0].Do(ctx, func() error {
				cmd := exec.Command("bash", "-ec", world+c.change)
				cmd.Env = append(os.Environ(), "XTABLES_LOCKFILE="+lock, fmt.Sprintf("other=/proc/%d/fd/%d", os.Getpid(), spaces[1].FD()))
				out, err := cmd.CombinedOutput()
				if err == nil && c.queue {
					err = bindQueue(t)
				}
				if err == nil && c.dns {
					var l net.PacketConn
					if l, err = net.ListenPacket("udp4", "10.96.0.2:53"); err == nil {
						t.Cleanup(func() { _ = l.Close() })
					}
				}
				if err != nil {
					return fmt.Errorf("%w: %s", err, out)
				}
				return nil
			}))
			capture, err := replica.ReadIn(ctx, spaces[0], func(ports []string) map[string]bool {
				return map[string]bool{"AAAAAAAAAAAAAAAA": true, "BBBBBBBBBBBBBBBB": true}
			})
			require.NoError(t, err)
			for i := range capture.Links {
				if l := &capture.Links[i]; l.NoARP { // as the link of a tunnel
					l.MAC = nil
				}
			}
			assert.Equal(t, strings.Join(capture.Stray(func(bool) bool { return true }), ", "), c.stray)
			for _, p := range capture.Pods(nil, 9) { // no address outside, even if it has asked by ARP, and no gateway
				for _, not := range []string{"203.0.113.7", "10.4.0.2"} {
					assert.True(t, !slices.Contains(p.Addresses, netip.MustParseAddr(not)), "%v", p.Addresses)
				}
			}
			own, _ := capture.Uplink(false) // not that of a table for TPROXY
			assert.Equal(t, own.String(), "192.168.50.1")
			cluster := cluster()
			flows := cluster.Flows(capture.Masquerades)
			r, err := replica.Build(ctx, capture, &replica.Spec{Pods: cluster.Pods, Ports: replay.Ports(flows)})
			require.NoError(t, err)
			t.Cleanup(r.Close)
			assert.Equal(t, strings.Join(r.Refused, "\n"), c.untried)
			outcomes, err := replay.New(r).Run(ctx, flows)
			require.NoError(t, err)
			found, lost := "", false
			for _, o := range outcomes {
				part := ""
				if o.Part >= 0 {
					part = r.Capture.Parts[o.Part].String()
				}
				if c.lost == "" && (o.Lost > 0 || o.Link != "") || o.Name == c.passes && o.Lost > 0 {
					t.Errorf("%s: lost %d of %d, %s, %s", o.Name, o.Lost, o.Sent, o.Why, part)
				}
				if o.Name == c.lost && (o.Lost > 0 || o.Link != "") {
					found, lost = part, true
					if !strings.HasPrefix(part, c.part) || (part == "") != (c.part == "") {
						t.Errorf("%s: %s, named %q", c.lost, o.Why, part)
					}
				}
			}
			for _, name := range []string{c.lost, c.passes} {
				if !slices.ContainsFunc(flows, func(f replay.Flow) bool { return f.Name == name || name == "" }) {
					t.Errorf("no flow %q", name)
				}
			}
			if lost != (c.lost != "") || c.part != "" && found == "" {
				t.Errorf("%s is not lost, or not named", c.lost)
			}
		})
	}
}

// bindQueue takes packets from queue 7, as a program does.
func bindQueue(t *testing.T) error {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return err
	}
	t.Cleanup(func() { _ = c.Close() })
	_, err = c.Execute(netlink.Message{Header: netlink.Header{Type: unix.NFNL_SUBSYS_QUEUE<<8 | 2, Flags: netlink.Request | netlink.Acknowledge},
		Data: []byte{0, 0, 0, 7, 8, 0, 1, 0, 1, 0, 0, 0}})
	return err
}
