package packetfilter

import (
	"fmt"
	"maps"
	"slices"
)

// form is one form of rule that kube-proxy writes, with the rule to try and the modules that it needs.
type form struct {
	name    string
	table   string // of iptables; "" for input of nft
	text    string // a rule's matches and target, or input of nft; "" if it cannot be tried: the modules decide
	modules []string
}

// buildInput returns the input that tries all forms at once, and the input for each form alone. Every COMMIT of
// iptables-restore costs the kernel a grace period, so each table has one.
func buildInput(forms []form) (whole string, each []string) {
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
		each = append(each, restoreTable(f.table, rule))
	}
	for _, table := range slices.Sorted(maps.Keys(rules)) {
		whole += restoreTable(table, rules[table])
	}
	return whole, each
}

func restoreTable(table, rules string) string {
	return "*" + table + "\n:NODEGATE-PROBE - [0:0]\n" + rules + "COMMIT\n"
}

// proxyForms returns the forms that kube-proxy uses in a mode, for one family (pkg/proxy/iptables/proxier.go and
// pkg/proxy/nftables/proxier.go of Kubernetes 1.36). In mode ipvs it writes the same rules and matches sets.
func proxyForms(mode string, family int) []form {
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
	rule := func(table, name, rule string, modules ...string) form { return form{name, table, rule, modules} }
	return []form{
		rule("nat", "comment", "-m comment --comment x", "xt_comment"),
		rule("filter", "connection tracking", "-m conntrack --ctstate NEW,INVALID -j DROP", "xt_conntrack"),
		rule("nat", "random endpoint", "-m statistic --mode random --probability 0.5", "xt_statistic"),
		rule("nat", "session affinity", "-m recent --name NODEGATE-PROBE --rcheck --seconds 10800 --reap", "xt_recent"),
		rule("nat", "mark", "-m mark ! --mark 0x4000/0x4000 -j MARK --or-mark 0x4000", "xt_mark"),
		rule("nat", "masquerading", "-j MASQUERADE --random-fully",
			fmt.Sprintf("xt_MASQUERADE|ip%st_MASQUERADE", map[int]string{6: "6"}[family])),
		rule("nat", "address translation", "-p tcp -m tcp -j DNAT --to-destination "+address, "xt_nat", "xt_tcpudp"),
		rule("nat", "local addresses", "-m addrtype --dst-type LOCAL", "xt_addrtype"),
		rule("filter", "reject", "-j REJECT", reject),
	}
}

func nftForms(family int) []form {
	ip, address, reject := "ip", "192.0.2.1", "nft_reject_ipv4"
	if family == 6 {
		ip, address, reject = "ip6", "2001:db8::1", "nft_reject_ipv6"
	}
	chainNAT := fmt.Sprintf("nft_chain_nat|nft_chain_nat_ipv%d", family)
	table := func(name, content string, modules ...string) form {
		return form{name, "", fmt.Sprintf("add table %s nodegate-probe\ndelete table %[1]s nodegate-probe\ntable %[1]s nodegate-probe {\n%s\n}\n",
			ip, content), modules}
	}
	rule := func(name, rule string, modules ...string) form {
		return table(name, "chain c {\n"+rule+"\n}", modules...)
	}
	nat := func(name, rule string, modules ...string) form {
		return table(name, "chain c {\ntype nat hook postrouting priority 100;\n"+rule+"\n}", append([]string{chainNAT}, modules...)...)
	}
	typed := map[int]string{4: "ipv4_addr", 6: "ipv6_addr"}[family]
	return []form{
		table("map of Services", "map m { type "+typed+" . inet_proto . inet_service : verdict; }\nchain c { "+ip+
			" daddr . meta l4proto . th dport vmap @m; }", "nf_tables"),
		table("session affinity", "set s { type "+typed+"; flags dynamic, timeout; timeout 3h; }\n"+
			"chain c { update @s { "+ip+" saddr }; }", "nf_tables"),
		rule("random endpoint", "numgen random mod 2 vmap { 0 : accept, 1 : accept }", "nft_numgen"),
		rule("local addresses", "fib daddr type local accept", "nft_fib", fmt.Sprintf("nft_fib_ipv%d", family)),
		rule("connection tracking", "ct state new accept", "nft_ct"),
		rule("mark", "meta mark set meta mark or 0x4000", "nf_tables"),
		rule("reject", "reject", reject),
		nat("masquerading", "masquerade fully-random", fmt.Sprintf("nft_masq|nft_masq_ipv%d", family)),
		table("address translation", "chain c {\ntype nat hook prerouting priority -100;\nmeta l4proto tcp dnat to "+
			dnatTarget(family, address)+"\n}", chainNAT, "nft_nat"),
	}
}

func dnatTarget(family int, address string) string {
	if family == 6 {
		return "[" + address + "]:80"
	}
	return address + ":80"
}
