package kubeproxy_test

import (
	"strings"
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

func TestUserData(t *testing.T) {
	node := func(mode, started, table string, sets ...string) *hosttest.Machine {
		m := checkstest.Node(map[string]string{
			"/var/lib/kube-proxy/config.conf": "kind: KubeProxyConfiguration\nmode: " + mode + "\n", "/proc/uptime": "1000.5 1.0\n",
			"/proc/self/ns/net": "-> net:[1]", "/proc/77/ns/net": "-> net:[1]", "/proc/77/cmdline": "kube-proxy\x00",
			"/proc/77/stat": "77 (kube-proxy) S 1 77 77 0 -1 0 0 0 0 0 0 0 0 0 20 0 9 0 " + started + " 0 0\n",
		}, nil)
		m.Others = host.Others{Unlistable: sets}
		if table != "" {
			m.Rules = map[string]string{"nft -j list table": table}
		}
		return m
	}
	const set = "inet filter allowed"
	const table = `{"nftables": [{"metainfo": {}}, {"table": {"family": "ip", "name": "kube-proxy"}}]}`
	const table6 = `{"nftables": [{"metainfo": {}}, {"table": {"family": "ip6", "name": "kube-proxy"}}]}`
	ip6 := func(off string) *hosttest.Machine {
		m := node("nftables", "10000", table, "ip6 filter allowed")
		m.Sysctl("net/ipv6/conf/all/disable_ipv6", off)
		return m
	}
	const remedy = "\nremedy: run `kubectl -n kube-system set image daemonset/kube-proxy kube-proxy=IMAGE` with a release that has nft 1.0.6.1 " +
		"or later; until then, write \"typeof ip saddr\" instead of \"type ipv4_addr\" in the sets of the node's own rules"
	const evidence = "\nevidence: nf_tables: inet filter allowed was created by nft 1.1.2 or later"
	const good = "pass\nwant: sets that kube-proxy's nft can read\ngot: sets that kube-proxy's nft can read"
	checkstest.RunOne(t, "kubeproxy.nft-user-data", checks.Run, []checkstest.Case{
		{What: "it crashes", Node: node("nftables", "10000", "", set), Want: `
warn
want: sets that kube-proxy's nft can read
got: kube-proxy has run for 15m0s without a table` + evidence + remedy},
		{What: "its nft can read the set", Node: node("nftables", "10000", table, set), Want: good + evidence},
		{What: "it crashes for IPv4", Node: node("nftables", "10000", table6, "ip filter allowed"), Want: `
warn
want: sets that kube-proxy's nft can read
got: kube-proxy has run for 15m0s without its table ip
evidence: nf_tables: ip filter allowed was created by nft 1.1.2 or later` + remedy},
		{What: "it crashes for IPv6", Node: ip6("0"), Want: `
warn
want: sets that kube-proxy's nft can read
got: kube-proxy has run for 15m0s without its table ip6
evidence: nf_tables: ip6 filter allowed was created by nft 1.1.2 or later` + remedy},
		{What: "a node without IPv6", Node: ip6("1"), Want: good + strings.Replace(evidence, "inet", "ip6", 1)},
		{What: "no such set", Node: node("nftables", "10000", ""), Want: good},
		{What: "just started", Node: node("nftables", "99000", "", set), Want: "skipped\nskipped: kube-proxy has just started"},
		{What: "another mode", Node: node("iptables", "10000", "", set), Want: "skipped\nskipped: kube-proxy is not known to run in nftables mode"},
	})
}
