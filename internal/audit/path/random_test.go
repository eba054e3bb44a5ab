package path_test

import (
	"fmt"
	"strings"
)

// backend is a program that keeps rules.
type backend struct {
	name       string
	clean      string
	load, save []string
	rules      func(random) string
	beside     bool // tables of nftables are loaded before or after the rules
}

func backends() []backend {
	const flush = "for t in raw mangle nat filter; do iptables-legacy -t $t -F; iptables-legacy -t $t -X; " +
		"for c in PREROUTING INPUT FORWARD OUTPUT POSTROUTING; do iptables-legacy -t $t -P $c ACCEPT 2>/dev/null || true; done; done"
	return []backend{
		{"iptables-nft", flush, []string{"iptables-nft-restore"}, []string{"iptables-nft-save"}, random.save, false},
		{"iptables-legacy", flush, []string{"iptables-legacy-restore"}, []string{"iptables-legacy-save"}, random.save, false},
		{"nftables", flush, []string{"nft", "-f", "-"}, []string{"nft", "-j", "list", "ruleset"}, random.nft, false},
		{"iptables-nft beside nftables", flush, []string{"iptables-nft-restore"}, []string{"iptables-nft-save"}, random.save, true},
		{"iptables-legacy beside nftables", flush, []string{"iptables-legacy-restore"}, []string{"iptables-legacy-save"}, random.save, true},
	}
}

// save returns random rules as iptables-save prints them.
func (r random) save() string {
	var b strings.Builder
	for _, t := range []struct {
		table string
		hooks []string
	}{
		{"raw", []string{"PREROUTING", "OUTPUT"}}, {"mangle", []string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}},
		{"nat", []string{"PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"}}, {"filter", []string{"INPUT", "FORWARD", "OUTPUT"}},
	} {
		table, hooks := t.table, t.hooks
		fmt.Fprintf(&b, "*%s\n", table)
		for _, hook := range hooks {
			policy := "ACCEPT"
			if table == "filter" && r.IntN(6) == 0 || table != "nat" && r.IntN(20) == 0 {
				policy = "DROP"
			}
			fmt.Fprintf(&b, ":%s %s [0:0]\n", hook, policy)
		}
		fmt.Fprintf(&b, ":A - [0:0]\n:B - [0:0]\n")
		for _, hook := range hooks {
			for range r.IntN(4) {
				b.WriteString(saveRule(hook, r.matches(hook), r.target(table, hook, "A", "B")))
			}
		}
		for range r.IntN(4) {
			b.WriteString(saveRule("A", r.matches(""), r.target(table, "", "B")))
		}
		for range r.IntN(3) {
			b.WriteString(saveRule("B", r.matches(""), r.target(table, "")))
		}
		b.WriteString("COMMIT\n")
	}
	return b.String()
}

func saveRule(chain, matches, target string) string {
	if strings.Contains(matches, "-p udp") {
		target = strings.TrimPrefix(target, " -p udp")
	}
	return "-A " + chain + matches + target + "\n"
}

func (r random) matches(hook string) string {
	text := ""
	for range r.IntN(3) {
		one := ""
		switch r.IntN(10) {
		case 0:
			one = " " + r.not() + "-s " + r.of("10.1.0.2/32", "10.1.0.0/24", "192.0.2.1/32", "10.0.0.0/8", "10.1.0.2/31")
		case 1:
			one = " " + r.not() + "-d " + r.of("10.96.0.1/32", "10.96.0.0/12", "192.0.2.0/24", "10.1.0.1/32", "10.96.0.2/31")
		case 2:
			one = " -p udp -m udp " + r.not() + "--dport " + r.of("53", "80", "60:100", "8472")
		case 3:
			one = " -p udp -m multiport " + r.not() + "--dports " + r.of("53,80", "80,8000:9000")
		case 4:
			one = " -m mark " + r.not() + "--mark " + r.of("0x0/0x1", "0x1/0x1", "0x4000/0x4000", "0x0", "0x3/0xff")
		case 5:
			if r.IntN(4) == 0 {
				one = " -m conntrack " + r.not() + r.of("--ctorigdst 10.96.0.0/12", "--ctorigdst 10.96.0.1/32", "--ctstatus SEEN_REPLY")
				break
			}
			one = " -m conntrack " + r.not() + "--ctstate " + r.of("NEW", "RELATED,ESTABLISHED", "INVALID", "NEW,UNTRACKED", "DNAT")
		case 6:
			one = " -m addrtype " + r.not() + "--" + r.of("src", "dst") + "-type " + r.of("LOCAL", "UNICAST")
		case 7:
			switch hook {
			case "PREROUTING", "INPUT", "FORWARD":
				one = " " + r.not() + "-i " + r.of("pod0", "pod+", "up0", "lo")
			case "OUTPUT", "POSTROUTING":
				one = " " + r.not() + "-o " + r.of("pod0", "up+", "up0", "lo")
			}
		case 9:
			one = " -m " + r.of("ttl --ttl-lt 128", "ttl --ttl-gt 64", "length --length 0:65535")
		case 8:
			one = " -m iprange " + r.not() + "--" + r.of("src", "dst") + "-range " + r.of("10.1.0.2-10.96.0.1", "10.96.0.2-10.96.0.200")
		}
		if !sameOption(text, one) {
			text += one
		}
	}
	return text
}

// sameOption reports whether both texts have an option that iptables takes once.
func sameOption(text, one string) bool {
	for _, option := range []string{" -s ", " -d ", " -i ", " -o ", "-p udp", "--mark", "--ct", "-type", "-range", "--ttl", "--length"} {
		if strings.Contains(text, option) && strings.Contains(one, option) {
			return true
		}
	}
	return false
}

func (r random) target(table, hook string, chains ...string) string {
	list := []string{" -j ACCEPT", " -j RETURN", " -j MARK --set-xmark " + r.of("0x1/0x1", "0x4000/0x4000", "0x3/0xff", "0x0/0x4000", "0x1/0x0")}
	for _, c := range chains {
		list = append(list, " -j "+c, " -j "+c, " -g "+c)
	}
	switch table {
	case "raw":
		list = append(list, " -j CT --notrack", " -j DROP")
	case "mangle":
		list = append(list, " -j DROP", " -j CONNMARK --save-mark --nfmask 0xffffffff --ctmask 0xffffffff",
			" -j CONNMARK --restore-mark --nfmask 0xff --ctmask 0xff")
	case "filter":
		list = append(list, " -j DROP", " -j REJECT --reject-with icmp-port-unreachable")
	case "nat":
		switch hook {
		case "PREROUTING", "OUTPUT":
			to := " -p udp -j DNAT --to-destination " + r.of("192.0.2.9:80", "10.96.0.10:8053", "192.0.2.77")
			list = append(list, to, to)
		case "POSTROUTING":
			list = append(list, " -j MASQUERADE")
		}
	}
	if table != "mangle" && table != "filter" && table != "raw" {
		list[2] = " -j MARK --set-xmark 0x8/0x8"
	}
	return list[r.IntN(len(list))]
}

// nft returns random tables of nftables, with chains of several types and priorities.
func (r random) nft() string {
	var b strings.Builder
	for i, family := range []string{"ip", "inet"} {
		fmt.Fprintf(&b, "table %s t%d {\n", family, i)
		hooks := []string{"prerouting", "input", "forward", "output", "postrouting"}
		b.WriteString("\tset s { type ipv4_addr; flags interval; elements = { 10.96.0.0/30, 192.0.2.9 }; }\n")
		b.WriteString("\tset many { type ipv4_addr; elements = { 10.1.0.3, 192.0.2.1, 198.18.0.1 }; }\n")
		b.WriteString("\tset pairs { type ipv4_addr . inet_service; elements = { 10.96.0.1 . 80, 10.96.0.10 . 53, 192.0.2.9 . 8053 }; }\n")
		for _, c := range []string{"b", "a"} {
			fmt.Fprintf(&b, "\tmap %smap { type ipv4_addr : verdict; elements = { 10.96.0.1 : jump %s, 10.96.0.2 : goto %s, 10.96.0.10 : return }; }\n", c, c, c)
			fmt.Fprintf(&b, "\tchain %s {\n", c)
			for range r.IntN(4) {
				fmt.Fprintf(&b, "\t\t%s%s\n", r.nftMatches(""), r.nftVerdict("", map[string]string{"a": "b"}[c]))
			}
			b.WriteString("\t}\n")
		}
		for n, hook := range hooks {
			for k := range r.IntN(3) {
				kind, priority := "filter", r.of("-310", "-160", "-10", "0", "5", "110")
				if hook != "forward" && r.IntN(3) == 0 {
					kind, priority = "nat", r.of("-110", "-100", "100", "300")
				}
				policy := r.of("accept", "accept", "accept", "accept", "drop")
				if kind == "nat" {
					policy = "accept"
				}
				fmt.Fprintf(&b, "\tchain h%d%d {\n\t\ttype %s hook %s priority %s; policy %s;\n", n, k, kind, hook, priority, policy)
				if family == "inet" && r.IntN(2) == 0 { // no rule for these packets
					fmt.Fprintf(&b, "\t\t%s%s\n", r.of("ip6 saddr != fd00::1 ", "ip6 nexthdr udp ", "ip6 hoplimit != 7 ", "ip6 nexthdr != 6 "),
						r.of("accept", "drop", "meta mark set 0x8"))
				}
				for range r.IntN(4) {
					fmt.Fprintf(&b, "\t\t%s%s\n", r.nftMatches(hook), r.nftVerdict(kind+" "+hook, "a", "b"))
				}
				b.WriteString("\t}\n")
			}
		}
		b.WriteString("}\n")
	}
	return b.String()
}

func (r random) nftMatches(hook string) string {
	text := ""
	for range r.IntN(3) {
		not := r.of("", "", "!= ")
		switch r.IntN(13) {
		case 0:
			text += "ip saddr " + not + r.of("10.1.0.2", "10.1.0.0/24", "{ 10.1.0.3, 192.0.2.1 }", "10.1.0.2-10.1.0.9") + " "
		case 1:
			text += "ip daddr " + not + r.of("10.96.0.1", "10.96.0.0/12", "@s", "{ 10.96.0.2, 192.0.2.0/24 }") + " "
		case 2:
			text += "udp dport " + not + r.of("53", "{ 53, 80 }", "60-100") + " "
		case 3:
			text += "meta mark " + r.of("0x1", "& 0x1 == 0x1", "& 0x4000 != 0x0", "!= 0") + " "
		case 4:
			text += "ct state " + r.of("new", "established,related", "invalid", "{ new, untracked }") + " "
		case 5:
			text += "fib " + r.of("saddr", "daddr") + " type " + not + "local "
		case 6:
			text += "meta l4proto " + r.of("udp ", "!= tcp ")
		case 8:
			text += "udp dport " + r.of("!= 60-100", "> 60", "<= 80", "{ 50-60, 8472 }", "{ 1, 2, 3, 4, 5, 6, 7, 8, 9, 10-53 }") + " "
		case 9:
			text += "ip daddr . udp dport " + not + r.of("{ 10.96.0.1 . 53, 10.96.0.2 . 80 }", "@pairs") + " "
		case 10:
			text += "ip saddr " + r.of("!= 10.1.0.2-10.1.0.9", "@many", "!= @many") + " "
		case 11:
			text += "ct mark " + r.of("0x1", "& 0x3 == 0x3", "!= 0x0") + " "
		case 12:
			text += r.of("iif lo ", "ip protocol udp ", "ct state != new ", "ct state ! established,related ", "ct state & (new|untracked) != 0 ",
				"ip ttl < 128 ", "ip ttl > 64 ", "ct original ip daddr 10.96.0.0/12 ", "ct original ip daddr != 10.96.0.1 ",
				"fib daddr type unicast ", "fib saddr type unicast ", "fib daddr type { unicast, multicast } ", "ct status ! dnat ")
		case 7:
			switch hook {
			case "prerouting", "input", "forward":
				text += "iifname " + not + r.of("pod0", "\"pod*\"", "{ up0, lo }") + " "
			case "output", "postrouting":
				text += "oifname " + not + r.of("pod0", "up0", "lo") + " "
			}
		}
	}
	return text
}

func (r random) nftVerdict(where string, chains ...string) string {
	list := []string{"accept", "return", "meta mark set " + r.of("0x1", "meta mark | 0x4000", "meta mark & 0xfffffff0", "meta mark ^ 0x3"), "counter"}
	for _, c := range chains {
		if c != "" {
			list = append(list, "jump "+c, "goto "+c, "udp dport vmap { 53 : jump "+c+", 80 : accept }",
				"ct state vmap { new : jump "+c+", established : accept }", "ip daddr vmap @"+c+"map")
		}
	}
	kind, hook, _ := strings.Cut(where, " ")
	switch {
	case kind == "nat" && (hook == "prerouting" || hook == "output"):
		to := "udp dport 1-65535 dnat ip to " + r.of("192.0.2.9:80", "10.96.0.10:8053", "192.0.2.77")
		list = append(list, to, to, "dnat ip to udp dport map { 80 : 192.0.2.9, 1-60 : 192.0.2.77 }",
			"meta l4proto udp dnat ip addr . port to ip daddr map { 10.96.0.1 : 192.0.2.9 . 80, 10.96.0.2 : 192.0.2.77 . 81 }")
		if hook == "prerouting" { // a redirected packet of the node itself comes in again by lo
			list = append(list, "meta l4proto udp redirect to :8053", "redirect")
		}
	case kind == "nat" && hook == "postrouting":
		list = append(list, "masquerade")
	case kind == "filter":
		list = append(list, "drop", "ct mark set meta mark", "ct mark set 0x3", "meta mark set ct mark")
		switch hook {
		case "prerouting":
			list = append(list, "notrack")
		case "output":
			list = append(list, "notrack", "reject")
		case "input", "forward":
			list = append(list, "reject")
		}
	}
	return list[r.IntN(len(list))]
}
