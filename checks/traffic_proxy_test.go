package checks_test

import (
	"strings"
	"testing"

	"nodegate/checks/kubeproxy"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/ruleset"
)

// TestProxySave: the recorded node is a healthy one to begin with.
func TestProxySave(t *testing.T) {
	set, err := ruleset.Parse("", strings.NewReader(proxySave))
	if err != nil {
		t.Fatal(err)
	}
	liberal := false
	for _, f := range kubeproxy.Judge([]*ruleset.Set{set}, kubeproxy.Options{BeLiberal: &liberal}).Findings {
		t.Errorf("%s: %s: %s", f.Name, f.Message, f.Rule)
	}
}

func TestInvalidPackets(t *testing.T) {
	withoutDrop, late := changed(t, dropInvalid, ""), changed(t, dropInvalid, "", acceptMark, acceptMark+dropInvalid)
	foreign := changed(t, dropInvalid, "-A KUBE-FORWARD -j LOG\n"+dropInvalid)
	gone := changed(t, dropInvalid, "", acceptMark, "", ":KUBE-FORWARD - [0:0]\n", "",
		"-A FORWARD -m comment --comment \"kubernetes forwarding rules\" -j KUBE-FORWARD\n", "",
		"-A KUBE-FORWARD -m comment --comment \"kubernetes forwarding conntrack rule\" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n", "")
	notReached := changed(t, "-A FORWARD -m comment --comment \"kubernetes forwarding rules\" -j KUBE-FORWARD\n", "")
	old := changed(t, "-A KUBE-FORWARD -m comment --comment \"kubernetes forwarding conntrack rule\" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n",
		"-A KUBE-FORWARD -s 10.244.0.0/16 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n-A KUBE-FORWARD -d 10.244.0.0/16 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n",
		dropInvalid, "", ":KUBE-PROXY-FIREWALL - [0:0]\n", "",
		"-A INPUT -m conntrack --ctstate NEW -m comment --comment \"kubernetes load balancer firewall\" -j KUBE-PROXY-FIREWALL\n", "",
		"-A FORWARD -m conntrack --ctstate NEW -m comment --comment \"kubernetes load balancer firewall\" -j KUBE-PROXY-FIREWALL\n", "",
		"-A OUTPUT -m conntrack --ctstate NEW -m comment --comment \"kubernetes load balancer firewall\" -j KUBE-PROXY-FIREWALL\n", "",
		"-A KUBE-SVC-NPX46M4PTMTKRN6Y ! -s", "-A KUBE-SERVICES ! -s")
	const changedName = "conntrack.be-liberal-changed"
	runJudged(t, []judgedCase{
		{what: "DROP left out", name: "conntrack.invalid", node: proxyNode(withoutDrop, "0"), policy: `check "conntrack.be-liberal-changed" {}`, want: `
warn
want: be_liberal=1, or INVALID dropped
got: be_liberal=0, no DROP of INVALID
evidence: /proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal: 0
because: conntrack.be-liberal-changed
remedy: run: sysctl -w net.netfilter.nf_conntrack_tcp_be_liberal=1; and put it into the policy`},
		{what: "DROP too late", name: "conntrack.invalid", node: proxyNode(late, "0"), want: `
warn
want: be_liberal=1, or INVALID dropped
got: be_liberal=0, DROP of INVALID after an ACCEPT
evidence: /proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal: 0
remedy: run: sysctl -w net.netfilter.nf_conntrack_tcp_be_liberal=1; and put it into the policy`},
		{what: "be_liberal", name: "conntrack.invalid", node: proxyNode(withoutDrop, "1"), want: `
pass
want: be_liberal=1, or INVALID dropped
got: be_liberal=1
evidence: /proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal: 1`},
		{what: "DROP", name: "conntrack.invalid", node: proxyNode(proxySave, "0"), want: `
pass
want: be_liberal=1, or INVALID dropped
got: INVALID dropped
evidence: /proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal: 0`},
		{what: "a foreign rule before it", name: "conntrack.invalid", node: proxyNode(foreign, "0"), want: `
unknown
error: cannot judge KUBE-FORWARD: kube-proxy writes no such rule into KUBE-FORWARD: -A KUBE-FORWARD -j LOG`},
		{what: "KUBE-FORWARD gone", name: "conntrack.invalid", node: proxyNode(gone, "0"), want: `
unknown
error: cannot see KUBE-FORWARD: table filter holds no rule of kube-proxy, other tables do; a flush that leaves the canary chain is not repaired before the next full sync (1 h)`},
		{what: "KUBE-FORWARD not reached", name: "conntrack.invalid", node: proxyNode(notReached, "0"), want: `
warn
want: be_liberal=1, or INVALID dropped
got: be_liberal=0, KUBE-FORWARD not reached
evidence: /proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal: 0
remedy: run: sysctl -w net.netfilter.nf_conntrack_tcp_be_liberal=1; and put it into the policy`},
		{what: "no kube-proxy", name: "conntrack.invalid", node: proxyNode("", "0"), want: `
skip
skip: no rules of kube-proxy here`},
		{what: "no conntrack", name: "conntrack.invalid", node: proxyNode(proxySave, ""), want: `
skip
skip: nf_conntrack is not loaded: nothing is tracked`},
		{what: "changed", name: changedName, node: proxyNode(withoutDrop, "0"), want: `
warn
want: be_liberal as kube-proxy found it
got: be_liberal=0 now, not 0 when kube-proxy started
evidence: /proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal: 0
remedy: run: sysctl -w net.netfilter.nf_conntrack_tcp_be_liberal=1; or keep 0 and restart kube-proxy: kubectl -n kube-system delete pod -l k8s-app=kube-proxy --field-selector spec.nodeName=NODE`},
		{what: "not changed", name: changedName, node: proxyNode(withoutDrop, "1"), want: `
pass
want: be_liberal as kube-proxy found it
got: be_liberal as kube-proxy found it
evidence: /proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal: 1`},
		{what: "DROP written", name: changedName, node: proxyNode(proxySave, "0"), want: `
pass
want: be_liberal as kube-proxy found it
got: be_liberal as kube-proxy found it
evidence: /proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal: 0`},
		{what: "before 1.29", name: changedName, node: proxyNode(old, "0"), want: `
skip
skip: kube-proxy 1.21 does not look at be_liberal`},
		{what: "no kube-proxy", name: changedName, node: proxyNode("", "0"), want: `
skip
skip: no rules of kube-proxy here`},
	})
}

func TestProxyRulesJudged(t *testing.T) {
	oldPostrouting := changed(t, returnClear, "", masquerade, oldForm)
	otherBit := changed(t, "-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000", "-A KUBE-MARK-MASQ -j MARK --set-xmark 0x8000/0x8000")
	notRandom := changed(t, " --random-fully", "")
	mixed := proxyNode(proxySave, "0")
	mixed.Rules["iptables-legacy-save"] = strings.Replace(proxySave, "v1.8.9 (nf_tables)", "v1.8.9", 1)
	bare := changed(t, "-A KUBE-FORWARD -m conntrack", "-A KUBE-FIREWALL -m comment --comment \"kubernetes firewall for dropping \\\"marked\\\" packets\" -j DROP\n-A KUBE-FORWARD -m conntrack")
	kubeletOnly := "*filter\n:INPUT ACCEPT [0:0]\n:KUBE-FIREWALL - [0:0]\n-A INPUT -j KUBE-FIREWALL\n[3:180] -A KUBE-FIREWALL -j DROP\nCOMMIT\n"
	runJudged(t, []judgedCase{
		{what: "old form", name: "kubeproxy.postrouting", node: proxyNode(oldPostrouting, ""), want: `
warn
want: masqueraded once, from random ports
got: double-snat
evidence: iptables nat KUBE-POSTROUTING: -A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -m mark --mark 0x4000/0x4000 -j MASQUERADE --random-fully: the mark stays on the packet: after VXLAN encapsulation it is masqueraded again with a random port, which breaks the checksum on kernels without the fix (delays of 1, 3 and 63 s)
remedy: upgrade kube-proxy to 1.16.13, 1.17.9, 1.18.6 or later; else a kernel with the fix (5.7, 5.4.41, 4.19.123, 4.14.181), else tx-checksum-ip-generic off on the VXLAN link`},
		{what: "other bit", name: "kubeproxy.postrouting", node: proxyNode(otherBit, ""), want: `
warn
want: masqueraded once, from random ports
got: mismatch
evidence: iptables nat KUBE-POSTROUTING: -A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN: KUBE-MARK-MASQ sets 0x8000, this rule uses 0x4000/0x4000
remedy: give kube-proxy and kubelet the same iptablesMasqueradeBit, then restart kube-proxy, which rewrites every rule: kubectl -n kube-system delete pod -l k8s-app=kube-proxy --field-selector spec.nodeName=NODE`},
		{what: "not random", name: "kubeproxy.postrouting", node: proxyNode(notRandom, ""), want: `
warn
want: masqueraded once, from random ports
got: random-fully
evidence: iptables nat KUBE-POSTROUTING: -A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE: MASQUERADE without --random-fully: two connections may be given one source port, and one of them waits a second or more
remedy: give kube-proxy iptables 1.6.2 or later`},
		{what: "right", name: "kubeproxy.postrouting", node: proxyNode(proxySave, ""), want: `
pass
want: masqueraded once, from random ports
got: masqueraded once, from random ports
evidence: iptables mode: form of 1.31 to 1.36`},
		{what: "no kube-proxy", name: "kubeproxy.postrouting", node: proxyNode("", ""), want: `
skip
skip: no rules of kube-proxy here`},
		{what: "cut off", name: "kubeproxy.postrouting", node: proxyNode(proxySave[:2000], ""), want: `
unknown
error: reading what iptables-nft-save printed: line 35: cut off: table nat has no COMMIT`},
		{what: "mixed", name: "iptables.backends", node: mixed, want: `
warn
want: one backend
got: mixed
evidence: iptables: Service chains in two backends: legacy and nft; the packet sees both
remedy: use one iptables backend for kube-proxy, kubelet and host (update-alternatives --config iptables), then reboot, or flush the other backend's KUBE chains`},
		{what: "one", name: "iptables.backends", node: proxyNode(proxySave, ""), want: `
pass
want: one backend
got: one backend
evidence: iptables-nft-save: holds kube-proxy's rules`},
		{what: "no kube-proxy", name: "iptables.backends", node: proxyNode("", ""), want: `
skip
skip: no rules of kube-proxy here`},
		{what: "bare", name: "iptables.bare-drop", node: proxyNode(bare, ""), want: `
fail
want: no DROP without a match
got: bare DROP in iptables-nft-save
evidence: iptables-nft-save: -A KUBE-FIREWALL -m comment --comment "kubernetes firewall for dropping \"marked\" packets" -j DROP
remedy: run: iptables-nft -D KUBE-FIREWALL -m comment --comment "kubernetes firewall for dropping \"marked\" packets" -j DROP; then use the same iptables version for kubelet and host`},
		{what: "bare, without kube-proxy", name: "iptables.bare-drop", node: proxyNode(kubeletOnly, ""), want: `
fail
want: no DROP without a match
got: bare DROP in iptables-nft-save
evidence: iptables-nft-save: -A KUBE-FIREWALL -j DROP
remedy: run: iptables-nft -D KUBE-FIREWALL -j DROP; then use the same iptables version for kubelet and host`},
		{what: "matched", name: "iptables.bare-drop", node: proxyNode(proxySave, ""), want: `
pass
want: no DROP without a match
got: no DROP without a match
evidence: iptables-nft-save: KUBE-FIREWALL: every DROP has a match`},
		{what: "no chain", name: "iptables.bare-drop", node: proxyNode("", ""), want: `
skip
skip: no chain KUBE-FIREWALL`},
	})
}

func TestVXLANChecksum(t *testing.T) {
	oldPostrouting := changed(t, returnClear, "", masquerade, oldForm)
	node := func(save, kernel, os string, offload, udpcsum bool) *hosttest.Machine {
		m := proxyNode(save, "0")
		m.Kernel = kernel
		m.Files["/etc/os-release"] = "ID=" + os + "\n"
		m.Links = map[string]*hosttest.Link{"eth0": {MTU: 1500}, "flannel.1": {Kind: "vxlan", MTU: 1450,
			VXLAN:    &host.VXLAN{UDPCSum: udpcsum, Port: 8472, Parent: "eth0"},
			Features: map[string]host.Feature{"tx-checksum-ip-generic": {Available: true, Requested: offload, Active: offload}}}}
		return m
	}
	none := node(oldPostrouting, "5.4.38", "flatcar", true, false)
	delete(none.Links, "flannel.1")
	runJudged(t, []judgedCase{
		{what: "all four", name: "vxlan.checksum", node: node(oldPostrouting, "5.4.38-flatcar", "flatcar", true, false), want: `
fail
want: not all four conditions
got: all four on flannel.1
evidence: flannel.1: udpcsum false, tx-checksum-ip-generic on
remedy: upgrade kube-proxy to 1.16.13, 1.17.9, 1.18.6 or later; else a kernel with the fix; else put a link block with offload tx-checksum-ip-generic = false into the policy, now: ethtool -K flannel.1 tx-checksum-ip-generic off`},
		{what: "kernel not known", name: "vxlan.checksum", node: node(oldPostrouting, "4.19.0-9-amd64", "debian", true, false), want: `
unknown
error: three of four conditions hold on flannel.1, and it is not known which kernels of debian before 5.7 have the fix (kernel 4.19.0-9-amd64)`},
		{what: "fixed kernel", name: "vxlan.checksum", node: node(oldPostrouting, "6.1.0-28-amd64", "debian", true, false), want: `
pass
want: not all four conditions
got: not all four conditions: the kernel has the fix
evidence: flannel.1: udpcsum false, tx-checksum-ip-generic on`},
		{what: "offload off", name: "vxlan.checksum", node: node(oldPostrouting, "5.4.38", "flatcar", false, false), want: `
pass
want: not all four conditions
got: not all four conditions: no tunnel without outer checksum offloads the inner one
evidence: flannel.1: udpcsum false, tx-checksum-ip-generic off`},
		{what: "outer checksum", name: "vxlan.checksum", node: node(oldPostrouting, "5.4.38", "flatcar", true, true), want: `
pass
want: not all four conditions
got: not all four conditions: no tunnel without outer checksum offloads the inner one
evidence: flannel.1: udpcsum true, tx-checksum-ip-generic on`},
		{what: "new form", name: "vxlan.checksum", node: node(proxySave, "5.4.38", "flatcar", true, false), want: `
pass
want: not all four conditions
got: not all four conditions: not masqueraded twice
evidence: flannel.1: udpcsum false, tx-checksum-ip-generic on`},
		{what: "no tunnel", name: "vxlan.checksum", node: none, want: `
skip
skip: no VXLAN tunnel`},
	})
}
