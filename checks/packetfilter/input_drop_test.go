package packetfilter_test

import (
	"testing"

	"nodegate/checks/checkstest"
	"nodegate/internal/host/hosttest"
)

// TestPackets: of what packets in a copy of the node showed, each check reports the losses that are its own.
func TestPackets(t *testing.T) {
	node := func(packets string) *hosttest.Machine {
		m := checkstest.ProxyNode(checkstest.ProxySave, "")
		m.Packets = `{"losses": [` + packets + `]}`
		return m
	}
	const flows = `"flows": [{"name": "10.244.0.5 to 192.0.2.7:443", "kind": "outside", "pod": true, "from": "10.244.0.5", "to": "192.0.2.7:443",
		"protocol": 6, "sent": 3, "lost": 3, "why": "no answer"}]`
	const closed = `{"kind": "policy", "family": "ip", "table": "filter", "chain": "FORWARD", "cured": true, ` + flows + `}`
	const reject = `{"kind": "rule", "family": "ip", "table": "filter", "chain": "FORWARD", "position": 4, "cured": true, "rule": "-A FORWARD -j REJECT", ` +
		flows + `}`
	const policy = `{"kind": "rule", "family": "ip", "table": "filter", "chain": "cali-x", "owner": "Calico", "policy": true, "rule": "-A cali-x -j DROP", ` +
		flows + `}`
	const listed = `{"kind": "rule", "family": "ip", "table": "filter", "chain": "FORWARD", "position": 1, "cured": true,
		"rule": "-A FORWARD -m set --match-set country dst -j DROP", ` + flows + `}`
	const kubelet = `{"kind": "rule", "family": "ip", "table": "filter", "chain": "INPUT", "position": 5, "cured": true,
		"rule": "-A INPUT -j REJECT --reject-with icmp-host-prohibited", "flows": [{"name": "192.0.2.2 to kubelet", "kind": "kubelet",
		"from": "192.0.2.2", "to": "192.0.2.10:10250", "protocol": 6, "sent": 3, "lost": 3}]}`
	const right = "pass\nwant: Pod traffic passes\ngot: Pod traffic passes"
	const open = "pass\nwant: the cluster's packets reach this node\ngot: the cluster's packets reach this node"
	checkstest.Run(t, []checkstest.Case{
		{What: "Docker's policy", Problem: "packetfilter.forward-drop", Node: node(closed), Want: `
warn
want: Pod traffic passes
got: packets of Pods are lost
evidence: iptables-nft: the policy DROP of chain FORWARD of table filter (iptables-nft) loses them: 10.244.0.5 to 192.0.2.7:443
remedy: with ufw run ` + "`ufw default allow routed`; after Docker set net.ipv4.ip_forward=1 before it starts, and run `iptables-nft -t filter -P FORWARD ACCEPT`; " +
			"otherwise restart the CNI plugin's agent, which inserts its ACCEPT, and find the program that sets the policy"},
		{What: "a REJECT for all", Problem: "packetfilter.forward-drop", Node: node(reject), Want: `
warn
want: Pod traffic passes
got: packets of Pods are lost
evidence: iptables-nft: rule 4 of chain FORWARD of table filter (iptables-nft), ` + "`-A FORWARD -j REJECT`, loses them: 10.244.0.5 to 192.0.2.7:443\n" +
			"remedy: accept these packets before the rule: `iptables-nft -I FORWARD 4 -p tcp -d 192.0.2.7 --dport 443 -j ACCEPT`, and so on for the others; find the program that adds it"},
		{What: "a NetworkPolicy", Problem: "packetfilter.forward-drop", Node: node(policy), Want: right},
		{What: "a list of countries", Problem: "packetfilter.forward-drop", Node: node(listed), Want: right},
		{What: "no kube-proxy", Problem: "packetfilter.forward-drop", Node: checkstest.ProxyNode("", ""), Want: "skipped\nskipped: no kube-proxy rules found"},
		{What: "kubelet's port", Problem: "packetfilter.input-drop", Node: node(kubelet), Want: `
warn
want: the cluster's packets reach this node
got: kubelet's port is closed
evidence: iptables-nft: rule 5 of chain INPUT of table filter (iptables-nft), ` + "`-A INPUT -j REJECT --reject-with icmp-host-prohibited`, loses them: 192.0.2.2 to kubelet\n" +
			"remedy: accept these packets before the rule: `iptables-nft -I INPUT 5 -p tcp -d 192.0.2.10 --dport 10250 -j ACCEPT`, and so on for the others; find the program that adds it"},
		{What: "no Pod yet", Problem: "packetfilter.input-drop", Want: "skipped\nskipped: no Pod has run", Node: func() *hosttest.Machine {
			m := node("")
			m.Packets = `{"skipped": "no Pod has run"}`
			return m
		}()},
		{What: "packets of Pods", Problem: "packetfilter.input-drop", Node: node(reject), Want: open},
	})
}
