package kubeproxy_test

import (
	"net/netip"
	"strings"
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
	"nodegate/internal/ruleset"
)

func TestWay(t *testing.T) {
	const jump = "-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\n"
	const right = "\npass\nwant: packets reach kube-proxy's rules\ngot: packets reach kube-proxy's rules"
	raw := func(rule string, own ...netip.Addr) *hosttest.Machine {
		m := checkstest.ProxyNode("*raw\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n"+rule+"\nCOMMIT\n"+checkstest.ProxySave, "")
		m.IPs = own
		return m
	}
	filtered := checkstest.ProxyNode(checkstest.ProxySave, "")
	set, err := ruleset.Parse("nft", strings.NewReader(`{"nftables": [{"table": {"family": "inet", "name": "fw"}}, {"chain":
		{"family": "inet", "table": "fw", "name": "fwd", "type": "filter", "hook": "forward", "prio": 0, "policy": "drop"}}]}`))
	require.NoError(t, err)
	filtered.Tables = set.Foreign
	dns := netip.MustParseAddr("10.96.0.1")
	const notrack = "-A PREROUTING -d 10.96.0.1/32 -p tcp -m tcp --dport 443 -j NOTRACK"
	checkstest.RunOne(t, "kubeproxy.way", checks.Run, []checkstest.Case{
		{What: "healthy", Node: checkstest.ProxyNode(checkstest.ProxySave, ""), Want: right},
		{What: "an address of its own, as NodeLocal DNSCache has", Node: raw(notrack, dns), Want: right},
		{What: "the address is gone", Node: raw(notrack, netip.MustParseAddr("192.0.2.10")), Want: `
fail
want: packets reach kube-proxy's rules
got: taken by a rule in raw PREROUTING
evidence: iptables raw PREROUTING: -A PREROUTING -d 10.96.0.1/32 -p tcp -m tcp --dport 443 -j NOTRACK: packets from Pods to this Service: chain PREROUTING of table raw, line 4 excludes them from conntrack, so that kube-proxy's rules do not translate them (NOTRACK)` +
			"\nremedy: remove the rule: `iptables -t raw -D PREROUTING -d 10.96.0.1/32 -p tcp -m tcp --dport 443 -j NOTRACK`; find the program that adds it"},
		{What: "the Pods' link", Node: checkstest.ProxyNode(checkstest.Changed(t, jump, "-A PREROUTING -i cni0 -j RETURN\n"+jump), ""), Want: `
fail
want: packets reach kube-proxy's rules
got: taken by a rule in nat PREROUTING
evidence: iptables nat PREROUTING: -A PREROUTING -i cni0 -j RETURN: packets that come in by cni0 to this Service: chain PREROUTING of table nat, line 44 ends the way of the packets before kube-proxy's rules (RETURN)` +
			"\nremedy: remove the rule: `iptables-nft -t nat -D PREROUTING -i cni0 -j RETURN`; find the program that adds it"},
		{What: "a few packets", Node: raw("-A PREROUTING -m statistic --mode random --probability 0.01 -j DROP"), Want: `
warn
want: packets reach kube-proxy's rules
got: taken by a rule in raw PREROUTING
evidence: iptables raw PREROUTING: -A PREROUTING -m statistic --mode random --probability 0.01 -j DROP: 1 % of packets from Pods to other machines: chain PREROUTING of table raw, line 4 loses them (DROP)` +
			"\nremedy: remove the rule: `iptables -t raw -D PREROUTING -m statistic --mode random --probability 0.01 -j DROP`; find the program that adds it"},
		{What: "endpoints", Node: checkstest.ProxyNode(checkstest.Changed(t, "*filter\n", "*filter\n-A FORWARD -d 10.244.0.0/16 -j DROP\n"), ""), Want: `
fail
want: packets reach kube-proxy's rules
got: taken by a rule in filter FORWARD
evidence: iptables filter FORWARD: -A FORWARD -d 10.244.0.0/16 -j DROP: packets from Pods to endpoints of Services: chain FORWARD of table filter, line 6 loses them (DROP)` +
			"\nremedy: remove the rule: `iptables-nft -t filter -D FORWARD -d 10.244.0.0/16 -j DROP`; find the program that adds it"},
		{What: "a set", Node: checkstest.ProxyNode(checkstest.Changed(t, jump, "-A PREROUTING -m set --match-set x src -j RETURN\n"+jump), ""), Want: right},
		{What: "a policy of nftables", Node: filtered, Want: `
fail
want: packets reach kube-proxy's rules
got: taken by a rule in inet fw fwd
evidence: nft inet fw fwd: packets from Pods to other machines: chain fwd of table inet fw, line 1 loses them (policy DROP)` +
			"\nremedy: accept these packets: add a rule for the Pods' links to chain fwd of table inet fw, or run " +
			"`nft 'chain inet fw fwd { policy accept; }'`; find the program that loads the table"},
		{What: "IPVS", Node: checkstest.ProxyNode(checkstest.Changed(t, ":KUBE-MARK-MASQ - [0:0]\n", ":KUBE-MARK-MASQ - [0:0]\n:KUBE-NODE-PORT - [0:0]\n",
			jump, "-A PREROUTING -j ACCEPT\n"+jump), ""), Want: "skipped\nskipped: no rules of kube-proxy's iptables or nftables mode found"},
		{What: "no kube-proxy", Node: checkstest.ProxyNode("", ""), Want: "skipped\nskipped: no rules of kube-proxy's iptables or nftables mode found"},
	})
}
