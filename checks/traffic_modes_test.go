package checks_test

import (
	"os"
	"strings"
	"testing"

	"nodegate/internal/host/hosttest"
)

// TestProxyModes: what the judgements of kube-proxy's rules say in other modes
// than iptables, and of IPv6.
func TestProxyModes(t *testing.T) {
	nft, err := os.ReadFile("kubeproxy/testdata/nft-list-ruleset.json")
	if err != nil {
		t.Fatal(err)
	}
	nftables := func(liberal string) *hosttest.Machine {
		m := proxyNode("", liberal)
		m.Rules["nft -j list table ip kube-proxy"] = string(nft)
		return m
	}
	ipvs := func() *hosttest.Machine {
		return proxyNode(changed(t, ":KUBE-MARK-MASQ - [0:0]\n", ":KUBE-MARK-MASQ - [0:0]\n:KUBE-NODE-PORT - [0:0]\n:KUBE-LOAD-BALANCER - [0:0]\n"), "0")
	}
	leftover := nftables("0")
	leftover.Rules["iptables-nft-save"] = proxySave
	dual := proxyNode(proxySave, "0")
	dual.Rules["ip6tables-nft-save"] = strings.NewReplacer("iptables-save", "ip6tables-save", " --random-fully", "",
		"192.0.2.10/32", "2001:db8::10/128", "192.0.2.10:6443", "[2001:db8::10]:6443", "10.96.0.1/32", "fd00::1/128", "10.244.0.0/16", "fd01::/48").Replace(proxySave)
	runJudged(t, []judgedCase{
		{what: "nftables", name: "conntrack.invalid", node: nftables("0"), want: `
warn
want: be_liberal=1, or INVALID dropped
got: be_liberal=0, nftables mode drops none
evidence: /proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal: 0
remedy: run: sysctl -w net.netfilter.nf_conntrack_tcp_be_liberal=1; and put it into the policy`},
		{what: "IPVS", name: "conntrack.invalid", node: ipvs(), want: `
warn
want: be_liberal=1, or INVALID dropped
got: be_liberal=0, ipvs mode drops none
evidence: /proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal: 0
remedy: run: sysctl -w net.netfilter.nf_conntrack_tcp_be_liberal=1; and put it into the policy`},
		{what: "nftables", name: "conntrack.be-liberal-changed", node: nftables("0"), want: `
skip
skip: nftables mode writes no rule that depends on be_liberal`},
		{what: "nftables", name: "kubeproxy.postrouting", node: nftables("0"), want: `
pass
want: masqueraded once, from random ports
got: masqueraded once, from random ports
evidence: nftables mode: form of 1.34 to 1.35`},
		{what: "nftables, not random", name: "kubeproxy.postrouting", node: func() *hosttest.Machine {
			m := nftables("0")
			m.Rules["nft -j list table ip kube-proxy"] = strings.ReplaceAll(string(nft), `"fully-random"`, `"random"`)
			return m
		}(), want: `
warn
want: masqueraded once, from random ports
got: random-fully, random-fully (IPv6)
evidence: nft kube-proxy masquerading: masquerade random: masquerade without fully-random
remedy: restart kube-proxy, which rewrites its table: kubectl -n kube-system delete pod -l k8s-app=kube-proxy --field-selector spec.nodeName=NODE`},
		{what: "IPVS", name: "kubeproxy.postrouting", node: ipvs(), want: `
unknown
error: the rules of kube-proxy's IPVS mode are not judged: look at iptables-save -t nat | grep KUBE-POSTROUTING`},
		{what: "IPv6 not random", name: "kubeproxy.postrouting", node: dual, want: `
warn
want: masqueraded once, from random ports
got: random-fully (IPv6)
evidence: ip6tables nat KUBE-POSTROUTING: -A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE: MASQUERADE without --random-fully: two connections may be given one source port, and one of them waits a second or more
remedy: give kube-proxy iptables 1.6.2 or later`},
		{what: "nftables and iptables", name: "iptables.backends", node: leftover, want: `
warn
want: one backend
got: mixed
evidence: nft: Service chains in two backends: nft and nftables; the packet sees both
remedy: use one iptables backend for kube-proxy, kubelet and host (update-alternatives --config iptables), then reboot, or flush the other backend's KUBE chains`},
	})
}
