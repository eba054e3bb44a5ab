package noderules_test

import (
	"os"
	"strings"
	"testing"

	"nodegate/checks/checkstest"
	"nodegate/internal/audit"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
	"nodegate/internal/ruleset"
)

// TestProxyModes tests the problems of kube-proxy's rules in nftables and IPVS mode, and for IPv6.
func TestProxyModes(t *testing.T) {
	nft, err := os.ReadFile("../../internal/audit/proxy/testdata/nft-list-ruleset.json")
	require.NoError(t, err)
	nftables := func(liberal string) *hosttest.Machine {
		m := checkstest.ProxyNode("", liberal)
		m.Rules["nft -j list table ip kube-proxy"] = string(nft)
		return m
	}
	ipvs := func() *hosttest.Machine {
		return checkstest.ProxyNode(checkstest.Changed(t, ":KUBE-MARK-MASQ - [0:0]\n",
			":KUBE-MARK-MASQ - [0:0]\n:KUBE-NODE-PORT - [0:0]\n:KUBE-LOAD-BALANCER - [0:0]\n", "-A KUBE-MARK-MASQ -j",
			"-A KUBE-LOAD-BALANCER -j KUBE-MARK-MASQ\n-A KUBE-MARK-MASQ -j"), "0")
	}
	leftover := nftables("0")
	leftover.Rules["iptables-nft-save"] = checkstest.ProxySave
	dual := checkstest.ProxyNode(checkstest.ProxySave, "0")
	dual.Rules["ip6tables-nft-save"] = strings.NewReplacer("iptables-save", "ip6tables-save", " --random-fully", "",
		"192.0.2.10/32", "2001:db8::10/128", "192.0.2.10:6443", "[2001:db8::10]:6443", "10.96.0.1/32", "fd00::1/128", "10.244.0.0/16",
		"fd01::/48").Replace(checkstest.ProxySave)
	checkstest.Run(t, []checkstest.Case{
		{What: "nftables", Problem: "conntrack.invalid", Node: nftables("0"), Want: `
warn
want: be_liberal=1, or INVALID dropped
got: be_liberal=0, nftables mode drops none
evidence: /proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal: 0` + "\nremedy: run `sysctl -w net.netfilter.nf_conntrack_tcp_be_liberal=1` and add the sysctl to the policy"},
		{What: "IPVS", Problem: "conntrack.invalid", Node: ipvs(), Want: `
warn
want: be_liberal=1, or INVALID dropped
got: be_liberal=0, ipvs mode drops none
evidence: /proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal: 0` + "\nremedy: run `sysctl -w net.netfilter.nf_conntrack_tcp_be_liberal=1` and add the sysctl to the policy"},
		{What: "nftables", Problem: "conntrack.be-liberal-changed", Node: nftables("0"), Want: `
skipped
skipped: nftables mode writes no rule that depends on be_liberal`},
		{What: "nftables", Problem: "kubeproxy.postrouting", Node: nftables("0"), Want: `
pass
want: masqueraded once, from random ports
got: masqueraded once, from random ports
evidence: nftables mode: rules in the form of 1.33 to 1.35`},
		{What: "nftables, not random", Problem: "kubeproxy.postrouting", Node: func() *hosttest.Machine {
			m := nftables("0")
			m.Rules["nft -j list table ip kube-proxy"] = strings.ReplaceAll(string(nft), `"fully-random"`, `"random"`)
			return m
		}(), Want: `
warn
want: masqueraded once, from random ports
got: random-fully, random-fully (IPv6)
evidence: nft kube-proxy masquerading: masquerade random: kube-proxy writes "masquerade fully-random" here
evidence: nft kube-proxy masquerading: masquerade random: kube-proxy writes "masquerade fully-random" here` + "\nremedy: restart kube-proxy, which rewrites its table: `kubectl -n kube-system delete pod -l k8s-app=kube-proxy --field-selector spec.nodeName=NODE`"},
		{What: "IPVS", Problem: "kubeproxy.postrouting", Node: ipvs(), Want: `
unknown` + "\nerror: cannot judge the rules of kube-proxy's IPVS mode; run `iptables-save -t nat | grep KUBE-POSTROUTING`"},
		{What: "IPv6 not random", Problem: "kubeproxy.postrouting", Node: dual, Want: `
warn
want: masqueraded once, from random ports
got: random-fully (IPv6)
evidence: ip6tables nat KUBE-POSTROUTING: -A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE: MASQUERADE without --random-fully: two connections may get the same source port, and one of them waits a second or more
remedy: use a kube-proxy image with iptables 1.6.2 or later`},
		{What: "nftables and iptables", Problem: "iptables.backends", Node: leftover, Want: `
fail
want: one backend
got: mixed
evidence: nft: Service chains in two backends: nft and nftables; each packet passes both
remedy: remove the rules of the other mode (run ` + "`" + `kube-proxy --cleanup` + "`" + `, then restart kube-proxy), or reboot`},
	})
}

// TestProxySave checks that the recorded node is healthy before tests change it.
func TestProxySave(t *testing.T) {
	set, err := ruleset.Parse("", strings.NewReader(checkstest.ProxySave))
	require.NoError(t, err)
	liberal := false
	for _, f := range audit.Judge([]*ruleset.Set{set}, audit.Options{BeLiberal: &liberal}).Findings {
		t.Errorf("%s: %s: %s", f.Name, f.Message, f.Rule)
	}
}

func TestProxyRulesJudged(t *testing.T) {
	oldPostrouting := checkstest.Changed(t, checkstest.ReturnClear, "", checkstest.Masquerade, checkstest.OldForm)
	otherBit := checkstest.Changed(t, "-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000",
		"-A KUBE-MARK-MASQ -j MARK --set-xmark 0x8000/0x8000")
	notRandom := checkstest.Changed(t, " --random-fully", "")
	mixed := checkstest.ProxyNode(checkstest.ProxySave, "0")
	mixed.Rules["iptables-legacy-save"] = strings.Replace(checkstest.ProxySave, "v1.8.9 (nf_tables)", "v1.8.9", 1)
	bare := checkstest.Changed(t, "-A KUBE-FORWARD -m conntrack",
		"-A KUBE-FIREWALL -m comment --comment \"kubernetes firewall for dropping \\\"marked\\\" packets\" -j DROP\n-A KUBE-FORWARD -m "+
			"conntrack")
	const connmark = ":AWS-CONNMARK-CHAIN-0 - [0:0]\n-A PREROUTING -i eni+ -j AWS-CONNMARK-CHAIN-0\n" +
		"-A AWS-CONNMARK-CHAIN-0 -j CONNMARK --restore-mark --nfmask 0x80 --ctmask 0x80\n"
	aws := checkstest.ProxyNode(checkstest.Changed(t, ":KUBE-MARK-MASQ - [0:0]\n",
		":AWS-CONNMARK-CHAIN-0 - [0:0]\n:KUBE-MARK-MASQ - [0:0]\n", "-A KUBE-MARK-MASQ -j", strings.TrimPrefix(connmark,
			":AWS-CONNMARK-CHAIN-0 - [0:0]\n")+"-A KUBE-MARK-MASQ -j"), "0")
	aws.Rules["iptables-legacy-save"] = "# Generated by iptables-save v1.8.9 on Fri Nov 20 22:57:10 2026\n*nat\n:PREROUTING ACCEPT [0:0]\n" +
		connmark + "COMMIT\n"
	kubeletOnly := "*filter\n:INPUT ACCEPT [0:0]\n:KUBE-FIREWALL - [0:0]\n-A INPUT -j KUBE-FIREWALL\n[3:180] -A KUBE-FIREWALL -j " +
		"DROP\nCOMMIT\n"
	checkstest.Run(t, []checkstest.Case{
		{What: "old form", Problem: "kubeproxy.postrouting", Node: checkstest.ProxyNode(oldPostrouting, ""), Want: `
warn
want: masqueraded once, from random ports
got: double-snat
evidence: iptables nat KUBE-POSTROUTING: -A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -m mark --mark 0x4000/0x4000 -j MASQUERADE --random-fully: the mark stays on the packet: after VXLAN encapsulation it is masqueraded again with a random port, which breaks the checksum on kernels without the fix (delays of 1, 3 and 63 s)
remedy: upgrade kube-proxy to 1.16.13, 1.17.9, 1.18.6 or later; or use a kernel with the fix (5.7, 5.4.41, 4.19.123, 4.14.181); or turn off tx-checksum-ip-generic on the VXLAN link`},
		{What: "other bit", Problem: "kubeproxy.postrouting", Node: checkstest.ProxyNode(otherBit, ""), Want: `
fail
want: masqueraded once, from random ports
got: damaged
evidence: iptables nat KUBE-MARK-MASQ: -A KUBE-MARK-MASQ -j MARK --set-xmark 0x8000/0x8000: kube-proxy writes "-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000" here
remedy: restart kube-proxy (rules stay in place): ` + "`" + `kubectl -n kube-system delete pod -l k8s-app=kube-proxy --field-selector spec.nodeName=NODE` + "`" + ``},
		{What: "not random", Problem: "kubeproxy.postrouting", Node: checkstest.ProxyNode(notRandom, ""), Want: `
warn
want: masqueraded once, from random ports
got: random-fully
evidence: iptables nat KUBE-POSTROUTING: -A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE: MASQUERADE without --random-fully: two connections may get the same source port, and one of them waits a second or more
remedy: use a kube-proxy image with iptables 1.6.2 or later`},
		{What: "correct", Problem: "kubeproxy.postrouting", Node: checkstest.ProxyNode(checkstest.ProxySave, ""), Want: `
pass
want: masqueraded once, from random ports
got: masqueraded once, from random ports
evidence: iptables mode: rules in the form of 1.31 to 1.37`},
		{What: "no kube-proxy", Problem: "kubeproxy.postrouting", Node: checkstest.ProxyNode("", ""), Want: `
skipped
skipped: no kube-proxy rules found`},
		{What: "cut off", Problem: "kubeproxy.postrouting", Node: checkstest.ProxyNode(checkstest.ProxySave[:2000], ""), Want: `
unknown
error: reading the output of iptables-nft-save: line 35: the input is truncated: table nat has no COMMIT`},
		{What: "the CNI's chains in both", Problem: "iptables.backends", Node: aws, Want: `
warn
want: one backend
got: the CNI's chains in both: AWS-CONNMARK-CHAIN-0
remedy: flush the chains in the backend that the CNI no longer uses, usually ` + "`iptables-legacy`" + `, or reboot the node`},
		{What: "mixed", Problem: "iptables.backends", Node: mixed, Want: `
fail
want: one backend
got: mixed
evidence: iptables: Service chains in two backends: legacy and nft; each packet passes both
remedy: use one iptables backend for kube-proxy, kubelet and the host (` + "`" + `update-alternatives --config iptables` + "`" + `), then reboot, or flush the KUBE chains of the other backend`},
		{What: "one backend", Problem: "iptables.backends", Node: checkstest.ProxyNode(checkstest.ProxySave, ""), Want: `
pass
want: one backend
got: one backend
evidence: iptables-nft-save: contains kube-proxy's rules`},
		{What: "no kube-proxy", Problem: "iptables.backends", Node: checkstest.ProxyNode("", ""), Want: `
skipped
skipped: no kube-proxy rules found`},
		{What: "bare", Problem: "iptables.bare-drop", Node: checkstest.ProxyNode(bare, ""), Want: `
fail
want: no DROP without a match
got: bare DROP in iptables-nft
evidence: iptables-nft-save: -A KUBE-FIREWALL -m comment --comment "left-out" -j DROP` + "\nremedy: run `iptables-nft -D KUBE-FIREWALL -m comment --comment \"kubernetes firewall for dropping \\\"marked\\\" packets\" -j DROP`, then use the same iptables version for kubelet and the host"},
		{What: "bare, without kube-proxy", Problem: "iptables.bare-drop", Node: checkstest.ProxyNode(kubeletOnly, ""), Want: `
fail
want: no DROP without a match
got: bare DROP in iptables-nft
evidence: iptables-nft-save: -A KUBE-FIREWALL -j DROP` + "\nremedy: run `iptables-nft -D KUBE-FIREWALL -j DROP`, then use the same iptables version for kubelet and the host"},
		{What: "bare twice", Problem: "iptables.bare-drop", Node: checkstest.ProxyNode(strings.Replace(kubeletOnly, "[3:180] ",
			"-A KUBE-FIREWALL -m comment --comment once -j DROP\n", 1), ""), Want: `
fail
want: no DROP without a match
got: bare DROP in iptables-nft
evidence: iptables-nft-save: -A KUBE-FIREWALL -m comment --comment once -j DROP
evidence: iptables-nft-save: -A KUBE-FIREWALL -j DROP` + "\nremedy: run `iptables-nft -D KUBE-FIREWALL -m comment --comment once -j DROP; iptables-nft -D KUBE-FIREWALL -j DROP`, then use the same iptables version for kubelet and the host"},
		{What: "with a match", Problem: "iptables.bare-drop", Node: checkstest.ProxyNode(checkstest.ProxySave, ""), Want: `
pass
want: no DROP without a match
got: no DROP without a match
evidence: iptables-nft-save: KUBE-FIREWALL: every DROP has a match`},
		{What: "no chain", Problem: "iptables.bare-drop", Node: checkstest.ProxyNode("", ""), Want: `
skipped
skipped: no chain KUBE-FIREWALL`},
	})
}
