package packetfilter_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"nodegate/checks"
	"nodegate/checks/checkstest"
	"nodegate/internal/host"
	"nodegate/internal/host/hosttest"
)

func TestKernelCan(t *testing.T) {
	const proxy, dep = "/var/lib/kube-proxy/config.conf", "/lib/modules/6.1.0/modules.dep"
	node := func(mode string, modules ...string) *hosttest.Machine {
		m := checkstest.Node(map[string]string{
			proxy: "kind: KubeProxyConfiguration\nmode: " + mode + "\n", dep: "", "/etc/os-release": "ID=rocky\nID_LIKE=\"rhel centos fedora\"\n",
		}, nil)
		for _, name := range modules {
			m.Files[dep] += "kernel/net/" + name + ".ko.xz:\n"
		}
		m.Lacks = map[string][]string{"iptables-restore": nil, "ip6tables-restore": nil, "nft": nil}
		return m
	}
	lacks := func(m *hosttest.Machine, program string, words ...string) *hosttest.Machine {
		m.Lacks[program] = words
		return m
	}
	without := func(m *hosttest.Machine, program string) *hosttest.Machine {
		delete(m.Lacks, program)
		return m
	}
	ipv6 := func(off string) *hosttest.Machine {
		m := node("iptables")
		m.Files["/proc/sys/net/ipv6"] = ""
		m.Sysctl("net/ipv6/conf/all/disable_ipv6", off)
		return m
	}
	const nftables = "nf_tables nft_numgen nft_fib nft_fib_ipv4 nft_ct nft_reject_ipv4 nft_chain_nat nft_masq"
	const ipvs = "ip_vs ip_vs_rr ip_set xt_set ip_set_bitmap_port ip_set_hash_ip ip_set_hash_ipport ip_set_hash_ipportip"
	unlisted := node("ipvs")
	delete(unlisted.Files, dep)
	unlistedNFT := without(node("nftables"), "nft")
	delete(unlistedNFT.Files, dep)
	unlistedNFT.Files["/sys/module/nf_tables/parameters/x"] = ""
	checkstest.RunOne(t, "packetfilter.kernel-can", checks.Boot, []checkstest.Case{
		{What: "iptables", Node: node("iptables"), Want: `
pass
want: every form of rule accepted
got: every form of rule accepted
evidence: /var/lib/kube-proxy/config.conf: mode iptables`},
		{What: "Enterprise Linux 10 without kernel-modules-extra",
			Node: lacks(node("iptables", "xt_comment"), "iptables-restore", "statistic", "comment"), Want: `
fail
want: every form of rule accepted
got: unavailable modules: xt_comment, xt_statistic
evidence: /var/lib/kube-proxy/config.conf: mode iptables
evidence: iptables-restore: comment: RULE_APPEND failed (No such file or directory)
evidence: iptables-restore: random endpoint: RULE_APPEND failed (No such file or directory)` + "\nremedy: install kernel-modules-extra-6.1.0 for xt_comment, xt_statistic, then run `modprobe -a xt_comment xt_statistic`"},
		{What: "no table nat for IPv6, which kube-proxy does not require", Node: lacks(ipv6("0"), "ip6tables-restore", "*nat", "REJECT"), Want: `
pass
want: every form of rule accepted
got: every form of rule accepted
evidence: /var/lib/kube-proxy/config.conf: mode iptables
evidence: ip6tables-restore: no table nat: kube-proxy serves IPv4 only`},
		{What: "no table nat for IPv4", Node: lacks(node("iptables"), "iptables-restore", "*nat"), Want: `
fail
want: every form of rule accepted
got: unavailable modules: xt_MASQUERADE, xt_addrtype, xt_comment, xt_mark, xt_nat, xt_recent, xt_statistic, xt_tcpudp
evidence: /var/lib/kube-proxy/config.conf: mode iptables
evidence: iptables-restore: comment: RULE_APPEND failed (No such file or directory)
evidence: iptables-restore: random endpoint: RULE_APPEND failed (No such file or directory)
evidence: iptables-restore: session affinity: RULE_APPEND failed (No such file or directory)
evidence: iptables-restore: mark: RULE_APPEND failed (No such file or directory)
evidence: iptables-restore: masquerading: RULE_APPEND failed (No such file or directory)
evidence: iptables-restore: address translation: RULE_APPEND failed (No such file or directory)
evidence: iptables-restore: local addresses: RULE_APPEND failed (No such file or directory)` + "\nremedy: install kernel-modules-extra-6.1.0 for xt_MASQUERADE, xt_addrtype, xt_comment, xt_mark, xt_nat, xt_recent, " +
			"xt_statistic, xt_tcpudp, then run `modprobe -a xt_MASQUERADE xt_addrtype xt_comment xt_mark xt_nat xt_recent xt_statistic xt_tcpudp`"},
		{What: "no REJECT for IPv6", Node: lacks(ipv6("0"), "ip6tables-restore", "REJECT"), Want: `
fail
want: every form of rule accepted
got: unavailable modules: ip6t_REJECT
evidence: /var/lib/kube-proxy/config.conf: mode iptables
evidence: ip6tables-restore: reject: RULE_APPEND failed (No such file or directory)` + "\nremedy: install kernel-modules-extra-6.1.0 for ip6t_REJECT, then run `modprobe -a ip6t_REJECT`"},
		{What: "the same with IPv6 disabled", Node: lacks(ipv6("1"), "ip6tables-restore", "REJECT"), Want: `
pass
want: every form of rule accepted
got: every form of rule accepted
evidence: /var/lib/kube-proxy/config.conf: mode iptables`},
		{What: "mode ipvs: every rule accepted, a set missing", Node: node("ipvs", strings.Fields(ipvs)...), Want: `
fail
want: every form of rule accepted
got: unavailable modules: ip_set_hash_ipportnet
evidence: /var/lib/kube-proxy/config.conf: mode ipvs
evidence: iptables-restore: IPVS and its sets:` + "\nremedy: install kernel-modules-extra-6.1.0 for ip_set_hash_ipportnet, then run `modprobe -a ip_set_hash_ipportnet`"},
		{What: "mode ipvs, complete", Node: node("ipvs", strings.Fields(ipvs+" ip_set_hash_ipportnet")...), Want: `
pass
want: every form of rule accepted
got: every form of rule accepted
evidence: /var/lib/kube-proxy/config.conf: mode ipvs`},
		{What: "mode ipvs, a kernel without a list of modules", Node: unlisted, Want: `
pass
want: every form of rule accepted
got: every form of rule accepted
evidence: /var/lib/kube-proxy/config.conf: mode ipvs`},
		{What: "nft_fib is missing", Node: lacks(node("nftables"), "nft", "fib daddr"), Want: `
fail
want: every form of rule accepted
got: unavailable modules: nft_fib, nft_fib_ipv4
evidence: /var/lib/kube-proxy/config.conf: mode nftables
evidence: nft: local addresses: RULE_APPEND failed (No such file or directory)` + "\nremedy: install kernel-modules-extra-6.1.0 for nft_fib, nft_fib_ipv4, then run `modprobe -a nft_fib nft_fib_ipv4`"},
		{What: "an nft that does not know the expression", Node: lacks(node("nftables"), "nft", "program numgen"), Want: `
pass
want: every form of rule accepted
got: every form of rule accepted
evidence: /var/lib/kube-proxy/config.conf: mode nftables`},
		{What: "no nft, a module missing by the files",
			Node: without(node("nftables", strings.Fields(nftables)...), "nft"), Want: `
fail
want: every form of rule accepted
got: unavailable modules: nft_nat
evidence: /var/lib/kube-proxy/config.conf: mode nftables
evidence: nft: nft is not installed
evidence: nft: address translation:` + "\nremedy: install kernel-modules-extra-6.1.0 for nft_nat, then run `modprobe -a nft_nat`"},
		{What: "no nft, all modules installed", Node: without(node("nftables", strings.Fields(nftables+" nft_nat")...), "nft"), Want: `
pass
want: every form of rule accepted
got: every form of rule accepted
evidence: /var/lib/kube-proxy/config.conf: mode nftables
evidence: nft: nft is not installed`},
		{What: "no nft and no list of modules: all may be built in", Node: unlistedNFT, Want: `
unknown
error: looking for module nft_numgen: reading the modules of kernel 6.1.0: open /lib/modules/6.1.0/modules.dep: no such file or directory`},
		{What: "no nf_tables", Node: lacks(node("nftables"), "nft", "cache update"), Want: `
fail
want: every form of rule accepted
got: unavailable modules: nf_tables
evidence: /var/lib/kube-proxy/config.conf: mode nftables
evidence: nft: session affinity: Error: cache initialization failed: Invalid argument` + "\nremedy: install kernel-modules-extra-6.1.0 for nf_tables, then run `modprobe -a nf_tables`"},
		{What: "timeout, all modules installed", Node: node("nftables", strings.Fields(nftables+" nft_nat")...), Host: tooSlow,
			Want: "unknown\nerror: nft has not returned: context deadline exceeded"},
		{What: "timeout after a rejection", Node: lacks(node("nftables"), "nft", "fib daddr"), Host: tooSlow, Want: `
fail
want: every form of rule accepted
got: unavailable modules: nft_fib, nft_fib_ipv4
evidence: /var/lib/kube-proxy/config.conf: mode nftables
evidence: nft: local addresses: RULE_APPEND failed (No such file or directory)` + "\nremedy: install kernel-modules-extra-6.1.0 for nft_fib, nft_fib_ipv4, then run `modprobe -a nft_fib nft_fib_ipv4`"},
		{What: "no kube-proxy", Node: checkstest.Node(nil, nil), Want: "skipped\nskipped: kube-proxy's mode is unknown"},
	})
	tree := func(modules string) map[string]string {
		all := ""
		for name := range strings.FieldsSeq(modules) {
			all += "kernel/net/" + name + ".ko.xz:\n"
		}
		return map[string]string{"lib/modules/6.12.0/modules.dep": all, "etc/os-release": "ID=rocky\nID_LIKE=\"rhel centos fedora\"\n"}
	}
	checkstest.RunOne(t, "packetfilter.kernel-can", checks.Image, []checkstest.Case{
		{What: "Enterprise Linux 10: only nftables", Tree: tree(nftables + " nft_nat nft_fib_ipv6 nft_reject_ipv6"), Want: `
pass
want: every form of rule accepted
got: every form of rule accepted
evidence: /lib/modules/6.12.0: iptables mode lacks ip6t_REJECT, ipt_REJECT, xt_MASQUERADE, xt_addrtype, xt_comment, xt_conntrack, ` +
			`xt_mark, xt_nat, xt_recent, xt_statistic, xt_tcpudp`},
		{What: "no kernel", Tree: map[string]string{"etc/os-release": "ID=rocky\n"}, Want: `
fail
want: every form of rule accepted
got: no kernel in the image
remedy: install a kernel with its modules below /lib/modules`},
		{What: "the same, for a policy of mode ipvs", Policy: "module \"ip_vs\" {}\n",
			Tree: tree(nftables + " nft_nat ip6t_REJECT ipt_REJECT xt_MASQUERADE " +
				"xt_addrtype xt_comment xt_conntrack xt_mark xt_nat xt_recent xt_statistic xt_tcpudp ip_vs ip_vs_rr ip_set xt_set ip_set_bitmap_port " +
				"ip_set_hash_ip ip_set_hash_ipport ip_set_hash_ipportip"), Want: `
fail
want: every form of rule accepted
got: 6.12.0: ipvs mode lacks ip_set_hash_ipportnet
evidence: /lib/modules/6.12.0: ipvs mode lacks ip_set_hash_ipportnet
remedy: install kernel-modules-extra-6.12.0`},
	})
}

func TestKernelCNI(t *testing.T) {
	node := func(conflist string, dep string) *hosttest.Machine {
		return checkstest.Node(map[string]string{"/etc/cni/net.d/10-x.conflist": conflist, "/lib/modules/6.1.0/modules.dep": dep,
			"/etc/os-release": "ID=ubuntu\n"}, nil)
	}
	unlisted := node(`{"name":"cbr0"}`, "")
	delete(unlisted.Files, "/lib/modules/6.1.0/modules.dep")
	checkstest.RunOne(t, "packetfilter.kernel-can-cni", checks.Run, []checkstest.Case{
		{What: "module missing", Node: node(`{"name":"cbr0"}`, ""), Want: `
warn
want: the CNI's modules installed
got: missing modules: vxlan
evidence: /etc/cni/net.d: cbr0
remedy: install linux-modules-6.1.0 and linux-modules-extra-6.1.0 for vxlan`},
		{What: "module installed", Node: node(`{"name":"cbr0"}`, "kernel/drivers/net/vxlan/vxlan.ko:\n"),
			Want: "pass\nwant: the CNI's modules installed\ngot: the CNI's modules installed"},
		{What: "a kernel without a list of modules", Node: unlisted, Want: "unknown\nerror: looking for module vxlan: reading the " +
			"modules of kernel 6.1.0: open /lib/modules/6.1.0/modules.dep: no such file or directory"},
		{What: "another CNI", Node: node(`{"name":"mine"}`, ""), Want: "skipped\nskipped: no CNI with known modules found"},
	})
}

func tooSlow(h *host.Host) { h.Rules = slowRules{h.Rules} }

// slowRules times out.
type slowRules struct{ host.Rules }

func (r slowRules) Takes(ctx context.Context, program, whole string, texts []string) ([]string, error) {
	rejected, err := r.Rules.Takes(ctx, program, whole, texts)
	if err == nil {
		err = fmt.Errorf("%s has not returned: %w", program, context.DeadlineExceeded)
	}
	return rejected, err
}
