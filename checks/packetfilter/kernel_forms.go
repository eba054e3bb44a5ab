package packetfilter

import (
	"fmt"
	"maps"
	"slices"
)

// form is one form of rule that kube-proxy writes: what is tried, and the modules behind it.
type form struct {
	what    string
	table   string // of iptables, "" for a text of nft
	text    string // a rule's matches and target; or a text of nft; "" for what cannot be tried: the modules decide
	modules []string
}

// textOf returns what tries all forms at once, and each alone. Every COMMIT of iptables-restore costs the kernel a grace
// period, so that a table has one.
func textOf(forms []form) (whole string, each []string) {
	rules := map[string]string{}
	for _, f := range forms {
		if f.table == "" {
			whole += f.text
			each = append(each, f.text)
			continue
		}
		rule := ""
		if f.text != "" {
			rule = "-A NODEGATE-PROBE " + f.text + "\n"
		}
		rules[f.table] += rule
		each = append(each, restore(f.table, rule))
	}
	for _, table := range slices.Sorted(maps.Keys(rules)) {
		whole += restore(table, rules[table])
	}
	return whole, each
}

func restore(table, rules string) string {
	return "*" + table + "\n:NODEGATE-PROBE - [0:0]\n" + rules + "COMMIT\n"
}

// formsOf returns the forms that kube-proxy uses in a mode, for one family (pkg/proxy/iptables/proxier.go and
// pkg/proxy/nftables/proxier.go of Kubernetes 1.36). In mode ipvs it writes the same rules, and matches sets.
func formsOf(mode string, family int) []form {
	if mode == "nftables" {
		return nftForms(family)
	}
	forms := iptablesForms(family)
	if mode == "ipvs" {
		forms = append(forms, form{"IPVS and its sets", "filter", "", []string{
			"ip_vs", "ip_vs_rr", "ip_set", "xt_set", "ip_set_bitmap_port", "ip_set_hash_ip", "ip_set_hash_ipport", "ip_set_hash_ipportip",
			"ip_set_hash_ipportnet",
		}})
	}
	return forms
}

func iptablesForms(family int) []form {
	address, reject := "192.0.2.1:80", "ipt_REJECT"
	if family == 6 {
		address, reject = "[2001:db8::1]:80", "ip6t_REJECT"
	}
	rule := func(table, what, rule string, modules ...string) form { return form{what, table, rule, modules} }
	return []form{
		rule("nat", "a comment", "-m comment --comment x", "xt_comment"),
		rule("filter", "connection tracking", "-m conntrack --ctstate NEW,INVALID -j DROP", "xt_conntrack"),
		rule("nat", "a random endpoint", "-m statistic --mode random --probability 0.5", "xt_statistic"),
		rule("nat", "session affinity", "-m recent --name NODEGATE-PROBE --rcheck --seconds 10800 --reap", "xt_recent"),
		rule("nat", "a mark", "-m mark ! --mark 0x4000/0x4000 -j MARK --or-mark 0x4000", "xt_mark"),
		rule("nat", "masquerading", "-j MASQUERADE --random-fully",
			fmt.Sprintf("xt_MASQUERADE|ip%st_MASQUERADE", map[int]string{6: "6"}[family])),
		rule("nat", "translation", "-p tcp -m tcp -j DNAT --to-destination "+address, "xt_nat", "xt_tcpudp"),
		rule("nat", "local addresses", "-m addrtype --dst-type LOCAL", "xt_addrtype"),
		rule("filter", "refusing", "-j REJECT", reject),
	}
}

func nftForms(family int) []form {
	ip, address, reject := "ip", "192.0.2.1", "nft_reject_ipv4"
	if family == 6 {
		ip, address, reject = "ip6", "2001:db8::1", "nft_reject_ipv6"
	}
	chainNAT := fmt.Sprintf("nft_chain_nat|nft_chain_nat_ipv%d", family)
	table := func(what, content string, modules ...string) form {
		return form{what, "", fmt.Sprintf("add table %s nodegate-probe\ndelete table %[1]s nodegate-probe\ntable %[1]s nodegate-probe {\n%s\n}\n",
			ip, content), modules}
	}
	rule := func(what, rule string, modules ...string) form {
		return table(what, "chain c {\n"+rule+"\n}", modules...)
	}
	nat := func(what, rule string, modules ...string) form {
		return table(what, "chain c {\ntype nat hook postrouting priority 100;\n"+rule+"\n}", append([]string{chainNAT}, modules...)...)
	}
	typed := map[int]string{4: "ipv4_addr", 6: "ipv6_addr"}[family]
	return []form{
		table("a map of Services", "map m { type "+typed+" . inet_proto . inet_service : verdict; }\nchain c { "+ip+
			" daddr . meta l4proto . th dport vmap @m; }", "nf_tables"),
		table("session affinity", "set s { type "+typed+"; flags dynamic, timeout; timeout 3h; }\n"+
			"chain c { update @s { "+ip+" saddr }; }", "nf_tables"),
		rule("a random endpoint", "numgen random mod 2 vmap { 0 : accept, 1 : accept }", "nft_numgen"),
		rule("local addresses", "fib daddr type local accept", "nft_fib", fmt.Sprintf("nft_fib_ipv%d", family)),
		rule("connection tracking", "ct state new accept", "nft_ct"),
		rule("a mark", "meta mark set meta mark or 0x4000", "nf_tables"),
		rule("refusing", "reject", reject),
		nat("masquerading", "masquerade fully-random", fmt.Sprintf("nft_masq|nft_masq_ipv%d", family)),
		table("translation", "chain c {\ntype nat hook prerouting priority -100;\nmeta l4proto tcp dnat to "+dnat(family, address)+"\n}",
			chainNAT, "nft_nat"),
	}
}

func dnat(family int, address string) string {
	if family == 6 {
		return "[" + address + "]:80"
	}
	return address + ":80"
}
