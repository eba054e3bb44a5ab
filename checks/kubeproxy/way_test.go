package kubeproxy_test

import (
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/host/hosttest"
)

func TestWay(t *testing.T) {
	node := func(packets string) *hosttest.Machine {
		m := checkstest.ProxyNode(checkstest.ProxySave, "")
		m.Packets = packets
		return m
	}
	const right = "\npass\nwant: packets reach kube-proxy's rules\ngot: packets reach kube-proxy's rules"
	loss := func(more, flow string) string {
		return `{"losses": [{"kind": "rule", "family": "ip", "table": "nat", "chain": "PREROUTING", "position": 1, "cured": true,
			"rule": "-A PREROUTING -i cni0 -j RETURN", ` + more + `"flows": [{"name": "10.244.0.5 to default/kubernetes:https", "kind": "service",
			"service": "default/kubernetes:https", "pod": true, "from": "10.244.0.5", "to": "10.96.0.1:443", "protocol": 6, ` + flow + `}]}]}`
	}
	const gone = `"sent": 3, "lost": 3, "why": "no answer"`
	checkstest.RunOne(t, "kubeproxy.way", checks.Run, []checkstest.Case{
		{What: "healthy", Node: node(""), Want: right},
		{What: "a rule of another program", Node: node(loss("", gone)), Want: `
fail
want: packets reach kube-proxy's rules
got: packets from Pods to Services (default/kubernetes:https): rule 1 of chain PREROUTING of table nat (iptables-nft), ` + "`-A PREROUTING -i cni0 -j RETURN`" + `, loses them
evidence: iptables nat PREROUTING: -A PREROUTING -i cni0 -j RETURN: packets from Pods to Services (default/kubernetes:https): rule 1 of chain PREROUTING of table nat (iptables-nft), ` + "`-A PREROUTING -i cni0 -j RETURN`, loses them\n" +
			"remedy: remove the rule: `iptables-nft -t nat -D PREROUTING -i cni0 -j RETURN`; find the program that adds it"},
		{What: "a NetworkPolicy", Node: node(loss(`"owner": "Calico", "policy": true, `, gone)), Want: right},
		{What: "a proxy of this node", Node: node(loss(`"taken": true, `, gone)), Want: right + "\nevidence: note: packets from 10.244.0.5 to " +
			"default/kubernetes:https are taken by a program of this node: rule 1 of chain PREROUTING of table nat (iptables-nft), " +
			"`-A PREROUTING -i cni0 -j RETURN`, loses them"},
		{What: "a rate, whose state starts empty", Node: node(loss("", gone+`, "doubt": "a limit"`)), Want: right + "\nevidence: note: packets from " +
			"10.244.0.5 to default/kubernetes:https may be lost: a limit: rule 1 of chain PREROUTING of table nat (iptables-nft), `-A PREROUTING -i cni0 -j RETURN`"},
		{What: "no Pod yet", Node: node(`{"skipped": "no Pod has run"}`), Want: "skipped\nskipped: no Pod has run"},
		{What: "IPVS", Node: checkstest.ProxyNode(checkstest.Changed(t, ":KUBE-MARK-MASQ - [0:0]\n", ":KUBE-MARK-MASQ - [0:0]\n:KUBE-NODE-PORT - [0:0]\n-A KUBE-NODE-PORT -j ACCEPT\n"), ""),
			Want: "skipped\nskipped: no rules of kube-proxy's iptables or nftables mode found"},
		{What: "no kube-proxy", Node: checkstest.ProxyNode("", ""), Want: "skipped\nskipped: no rules of kube-proxy's iptables or nftables mode found"},
	})
}
