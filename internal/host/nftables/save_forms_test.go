package nftables_test

import (
	"fmt"
	"strings"

	"nodegate/internal/ruleset"
)

// saved are rules in the forms of kube-proxy, kubelet, flannel, the CNI plugins and Docker, and
// other rules of each form. A line that begins with 4 or 6 is for that family only; %[1]s to %[4]s
// are addresses, %[5]s is a mask.
const saved = `
*raw
-A PREROUTING -p udp -m udp --dport 53 -j ACCEPT
-A OUTPUT -o lo -j ACCEPT
COMMIT
*mangle
:KUBE-IPTABLES-HINT - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
:POSTROUTING DROP [0:0]
-A OUTPUT -m mark --mark 0x4000/0x4000 -j ACCEPT
-A PREROUTING ! -i eth0 -m mark ! --mark 0x1 -j MARK --set-xmark 0x2/0xffffffff
COMMIT
*filter
:INPUT DROP [0:0]
:KUBE-FIREWALL - [0:0]
:CNI-FORWARD - [0:0]
:DOCKER-USER - [0:0]
:a.b_c - [0:0]
:Zz - [0:0]
-A INPUT -j KUBE-FIREWALL
-A INPUT -g Zz
-A INPUT
-A KUBE-FIREWALL ! -s %[3]s -d %[4]s -m comment --comment "block incoming localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP
-A KUBE-FIREWALL -m conntrack --ctstate INVALID,NEW,UNTRACKED,SNAT -j DROP
-A KUBE-FIREWALL -m conntrack --ctstate NEW,RELATED,ESTABLISHED -j ACCEPT
-A KUBE-FIREWALL -m state --state NEW -m tcp -p tcp --dport 22 -j ACCEPT
-A CNI-FORWARD -m comment --comment CNI_firewall-rules -j DOCKER-USER
-A CNI-FORWARD -m comment --comment "quotes ' \" and \\ end" -j RETURN
-A CNI-FORWARD -m comment --comment "" -j RETURN
-A CNI-FORWARD -m comment --comment "grüße ns/s:p" -m comment --comment "two" -j RETURN
-A FORWARD -s %[1]s -d %[2]s -i cni+ -o eth0 -j ACCEPT
-A FORWARD ! -o cni0 -j ACCEPT
-A FORWARD -s %[3]s ! -d %[4]s ! -p tcp -j ACCEPT
-A FORWARD -p sctp -m sctp --dport 80 -j ACCEPT
-A FORWARD -p sctp -m sctp ! --sport 1:2 --dport 80 -j ACCEPT
-A FORWARD -p udp -m udp ! --sport 5 -m comment --comment between -j ACCEPT
-A FORWARD -p tcp -m tcp --sport 1 ! --dport 2 -m comment --comment "two ports" -j ACCEPT
-A FORWARD -p tcp -m tcp --sport 65535 -j ACCEPT
-A FORWARD -p tcp -m tcp -j ACCEPT
-A FORWARD -p udp -m udp -j ACCEPT
-A FORWARD -p tcp -m multiport --dports 80,443,8000:9000 -j ACCEPT
-A FORWARD -p udp -m multiport ! --sports 53 -j ACCEPT
-A FORWARD -p tcp -m multiport --ports 1:2,3 -j ACCEPT
-A FORWARD -p tcp -j REJECT --reject-with tcp-reset
4-A FORWARD -s 10.0.0.0/255.0.255.0 -d 10.1.2.0/23 -j REJECT --reject-with icmp-port-unreachable
4-A FORWARD -j REJECT --reject-with icmp-admin-prohibited
6-A FORWARD -s fd00::/ffff:0:ffff:: -j REJECT --reject-with icmp6-port-unreachable
6-A FORWARD -s ::ffff:1.2.3.4 -d fe80::/10 -j REJECT --reject-with icmp6-adm-prohibited
6-A FORWARD -p ipv6-icmp -j REJECT --reject-with icmp6-no-route
COMMIT
*nat
:KUBE-SERVICES - [0:0]
:KUBE-SVC-AAAAAAAAAAAAAAAA - [0:0]
:KUBE-SEP-AAAAAAAAAAAAAAAA - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A OUTPUT -m addrtype --dst-type LOCAL -j KUBE-SERVICES
-A OUTPUT -m addrtype ! --dst-type LOCAL --src-type UNICAST,LOCAL --limit-iface-out -j KUBE-SERVICES
4-A PREROUTING -m addrtype ! --src-type BROADCAST --limit-iface-in -j KUBE-SERVICES
-A KUBE-SERVICES -d %[1]s -p tcp -m comment --comment "ns/s:p cluster IP" -m tcp --dport 443 -j KUBE-SVC-AAAAAAAAAAAAAAAA
-A KUBE-SVC-AAAAAAAAAAAAAAAA -m recent --rcheck --seconds 10800 --reap --name KUBE-SEP-AAAAAAAAAAAAAAAA --mask %[5]s --rsource -j KUBE-SEP-AAAAAAAAAAAAAAAA
-A KUBE-SVC-AAAAAAAAAAAAAAAA -m recent ! --update --seconds 1 --hitcount 2 --rttl --name x --mask %[5]s --rdest -j RETURN
-A KUBE-SVC-AAAAAAAAAAAAAAAA -m recent --remove --name x --mask %[5]s --rsource -j RETURN
-A KUBE-SVC-AAAAAAAAAAAAAAAA -m statistic --mode random --probability 0.33333333349 -j KUBE-SEP-AAAAAAAAAAAAAAAA
-A KUBE-SVC-AAAAAAAAAAAAAAAA -m statistic --mode random ! --probability 1.00000000000 -j KUBE-SEP-AAAAAAAAAAAAAAAA
-A KUBE-SVC-AAAAAAAAAAAAAAAA -m statistic --mode nth --every 3 --packet 1 -j KUBE-SEP-AAAAAAAAAAAAAAAA
-A KUBE-SEP-AAAAAAAAAAAAAAAA -s %[2]s -j MARK --set-xmark 0x4000/0x4000
-A KUBE-SEP-AAAAAAAAAAAAAAAA -p tcp -m recent --set --name KUBE-SEP-AAAAAAAAAAAAAAAA --mask %[5]s --rsource -m tcp -j DNAT --to-destination %[6]s
-A KUBE-SEP-AAAAAAAAAAAAAAAA -p udp -m udp -j DNAT --to-destination %[2]s --random --persistent
-A KUBE-SEP-AAAAAAAAAAAAAAAA -p tcp -m tcp -j DNAT --to-destination %[1]s-%[2]s
-A KUBE-SEP-AAAAAAAAAAAAAAAA -p tcp -m tcp -j DNAT --to-destination :80-90
-A KUBE-SERVICES -j MARK --set-xmark 0x0/0x4000
-A POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A POSTROUTING -j MASQUERADE --random-fully
-A POSTROUTING -p tcp -j MASQUERADE --to-ports 1024-65535 --random
-A POSTROUTING -p tcp -j MASQUERADE --to-ports 1024
-A POSTROUTING -s %[3]s -j SNAT --to-source %[2]s --random-fully
COMMIT
`

// savedForms returns saved for a family.
func savedForms(family string) string {
	a, other := []any{"10.96.0.1", "10.244.1.2", "127.0.0.0/8", "100.64.0.0/11", "255.255.255.255", "10.244.1.2:8080"}, "6"
	if family == ruleset.IPv6 {
		a, other = []any{"fd00:10:96::1", "fd00:10:244:1::2", "fd00:10:244::/56", "fd00:100::/43",
			"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "[fd00:10:244:1::2]:8080"}, "4"
	}
	var lines []string
	for line := range strings.Lines(fmt.Sprintf(saved, a...)) {
		if !strings.HasPrefix(line, other) {
			lines = append(lines, strings.TrimLeft(line, "46"))
		}
	}
	return strings.Join(lines, "")
}
