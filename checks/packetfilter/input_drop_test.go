package packetfilter_test

import (
	"strings"
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

func TestInputDrop(t *testing.T) {
	const jumps = "-A INPUT -j KUBE-FIREWALL\n"
	node := func(rules string) *hosttest.Machine {
		m := checkstest.ProxyNode(checkstest.Changed(t, jumps, rules+jumps), "")
		m.Links = map[string]*hosttest.Link{"flannel.1": {Kind: "vxlan", MTU: 1450, VXLAN: &host.VXLAN{Port: 8472}}}
		return m
	}
	const right = "\npass\nwant: the cluster's packets reach this node\ngot: the cluster's packets reach this node"
	remedyFor := func(accept string) string {
		return "\nremedy: insert a rule that accepts the cluster's packets before the one that drops them, for example `" + accept +
			"`, and save it in the firewall's configuration"
	}
	kubelet := remedyFor("iptables -I INPUT -p tcp --dport 10250 -j ACCEPT")
	remedy := remedyFor("iptables -I INPUT -p udp --dport 8472 -j ACCEPT; iptables -I INPUT -p tcp --dport 10250 -j ACCEPT")
	const wrong = "\nwarn\nwant: the cluster's packets reach this node\ngot: port 8472/udp of flannel.1 is closed, port 10250/tcp of kubelet is closed"
	const cloud = "-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n-A INPUT -p icmp -j ACCEPT\n-A INPUT -i lo -j ACCEPT\n" +
		"-A INPUT -p tcp -m conntrack --ctstate NEW -m tcp --dport 22 -j ACCEPT\n"
	const reject = "-A INPUT -j REJECT --reject-with icmp-host-prohibited\n"
	const accept = "-A INPUT -s 10.0.0.0/24 -p udp -m udp --dport 8472 -j ACCEPT\n-A INPUT -p tcp -m multiport --dports 10250,6443 -j ACCEPT\n"
	policyDrop := node(cloud)
	policyDrop.Rules["iptables-nft-save"] = strings.Replace(policyDrop.Rules["iptables-nft-save"], ":INPUT ACCEPT", ":INPUT DROP", 1)
	withUplink := func(rules string, others ...string) *hosttest.Machine {
		m := node(rules)
		for _, name := range append(others, "eth0", "lo") {
			m.Links[name] = &hosttest.Link{}
		}
		m.Routes = []string{"eth0"}
		return m
	}
	const closed = "-A INPUT -i eth0 -p tcp -m tcp --dport 10250 -j DROP\n"
	checkstest.RunOne(t, "packetfilter.input-drop", checks.Run, []checkstest.Case{
		{What: "no firewall", Node: node(""), Want: right},
		{What: "Oracle's images", Node: node(cloud + reject), Want: wrong +
			"\nevidence: iptables-nft-save: -A INPUT -j REJECT --reject-with icmp-host-prohibited" + remedy},
		{What: "a policy", Node: policyDrop, Want: wrong + "\nevidence: iptables-nft-save: :INPUT DROP" + remedy},
		{What: "accepted for the nodes", Node: node(cloud + accept + reject), Want: right},
		{What: "accepted too late", Node: node(cloud + reject + accept), Want: wrong +
			"\nevidence: iptables-nft-save: -A INPUT -j REJECT --reject-with icmp-host-prohibited" + remedy},
		{What: "a set of the nodes", Node: node("-A INPUT -m set --match-set nodes src -j ACCEPT\n" + reject), Want: right},
		{What: "from Pods only", Node: node("-A INPUT -i cni0 -j ACCEPT\n" + reject), Want: wrong +
			"\nevidence: iptables-nft-save: -A INPUT -j REJECT --reject-with icmp-host-prohibited" + remedy},
		{What: "an uplink of WireGuard", Node: node("-A INPUT -i wg0 -j ACCEPT\n" + reject), Want: right},
		{What: "an uplink of Open vSwitch", Node: node("-A INPUT -i br-ex -j ACCEPT\n" + reject), Want: right},
		{What: "Tailscale's rule, if its range has the Pods", Node: node("-A INPUT -s 10.128.0.0/9 ! -i tailscale0 -j DROP\n"), Want: "\nwarn\n" +
			"want: the cluster's packets reach this node\ngot: port 10250/tcp of kubelet is closed to the Pods of this node\n" +
			"evidence: iptables-nft-save: -A INPUT -s 10.128.0.0/9 ! -i tailscale0 -j DROP" + kubelet},
		{What: "closed to Pods on purpose", Node: node("-A INPUT -s 10.244.0.0/16 -p tcp -m tcp --dport 10250 -j DROP\n"), Want: right},
		{What: "closed at the only uplink", Node: withUplink(closed), Want: "\nwarn\nwant: the cluster's packets reach this node\n" +
			"got: port 10250/tcp of kubelet is closed\nevidence: iptables-nft-save: " + strings.TrimSpace(closed) + kubelet},
		{What: "closed at one of two uplinks", Node: withUplink(closed, "eth1"), Want: right},
		{What: "open to the nodes", Node: withUplink("-A INPUT -i eth0 -s 10.0.0.0/24 -p tcp -m tcp --dport 10250 -j ACCEPT\n" + closed), Want: right},
		{What: "no kube-proxy", Node: checkstest.ProxyNode("", ""), Want: "skipped\nskipped: no kube-proxy rules found"},
	})
}
