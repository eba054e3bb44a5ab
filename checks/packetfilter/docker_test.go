package packetfilter_test

import (
	"testing"

	"nodegate/checks/checkstest"
	"nodegate/internal/host/hosttest"
)

func TestDockerForwardDrop(t *testing.T) {
	const docker = `*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [0:0]
:OUTPUT ACCEPT [0:0]
:DOCKER - [0:0]
:DOCKER-FORWARD - [0:0]
:DOCKER-USER - [0:0]
:FLANNEL-FWD - [0:0]
:KUBE-FORWARD - [0:0]
-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-A FORWARD -j DOCKER-USER
-A FORWARD -j DOCKER-FORWARD
-A DOCKER-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A DOCKER-FORWARD -o docker0 -j DOCKER
-A DOCKER-FORWARD -i docker0 -j ACCEPT
-A DOCKER-FORWARD -i br-0123456789ab -j ACCEPT
-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT
`
	node := func(more string) *hosttest.Machine {
		return &hosttest.Machine{Rules: map[string]string{"iptables-nft-save": docker + more + "COMMIT\n",
			"ip6tables-nft-save": docker + "COMMIT\n"}}
	}
	open := node("")
	open.Rules["iptables-nft-save"] = "*filter\n:FORWARD ACCEPT [0:0]\n:DOCKER - [0:0]\nCOMMIT\n*nat\n:FORWARD DROP [0:0]\nCOMMIT\n"
	checkstest.Run(t, []checkstest.Case{
		{What: "FORWARD drops", Problem: "docker.forward-drop", Node: node(""), Want: `
warn
want: FORWARD accepts Pod traffic
got: FORWARD drops in iptables-nft
evidence: iptables-nft-save: :FORWARD DROP` + "\nremedy: run `iptables-nft -P FORWARD ACCEPT` and set net.ipv4.ip_forward=1 before Docker starts, or it sets FORWARD to DROP again"},
		{What: "flannel accepts", Problem: "docker.forward-drop", Node: node("-A FORWARD -m comment --comment " +
			"\"flanneld forward -j DROP\" -j FLANNEL-FWD\n-A FLANNEL-FWD -s 10.244.0.0/16 -j ACCEPT\n"), Want: `
pass
want: FORWARD accepts Pod traffic
got: FORWARD accepts Pod traffic
evidence: iptables-nft-save: -A FLANNEL-FWD -s 10.244.0.0/16 -j ACCEPT`},
		{What: "FORWARD accepts", Problem: "docker.forward-drop", Node: open, Want: `
pass
want: FORWARD accepts Pod traffic
got: FORWARD accepts Pod traffic
evidence: iptables-nft-save: :FORWARD ACCEPT`},
		{What: "a rule drops, which packetfilter.forward-drop judges", Problem: "docker.forward-drop", Node: &hosttest.Machine{Rules: map[string]string{
			"iptables-nft-save": "*filter\n:FORWARD DROP [0:0]\n:DOCKER - [0:0]\n-A FORWARD -j DROP\n-A FORWARD -s 10.244.0.0/16 -j ACCEPT\nCOMMIT\n"}},
			Want: "skipped\nskipped: a rule drops the packets before the policy does: packetfilter.forward-drop judges it"},
		{What: "no Docker", Problem: "docker.forward-drop", Node: checkstest.ProxyNode(checkstest.ProxySave, ""), Want: `
skipped
skipped: no Docker rules found`},
	})
}
