package path_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"nodegate/internal/audit/path"
	"nodegate/internal/ruleset"
)

// parse returns rules of iptables-save text or of nft's JSON.
func parse(t *testing.T, texts ...string) (sets []*ruleset.Set) {
	t.Helper()
	for _, text := range texts {
		set, err := ruleset.Parse("", strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		sets = append(sets, set)
	}
	return sets
}

// show formats ways: the end, its chance or "?", the destination, and the rules that decided.
func show(ways []path.Way) string {
	var b strings.Builder
	for _, w := range ways {
		chance := "?"
		if w.Sure {
			chance = fmt.Sprintf("%.2f", w.Chance)
		}
		fmt.Fprintf(&b, "%s %s", chance, w.End)
		if p := w.Packet; p.Translated() {
			fmt.Fprintf(&b, " to %s:%d", p.Destination.Addr(), p.Port)
		}
		if w.Packet.Masqueraded() {
			b.WriteString(" masqueraded")
		}
		if w.Packet.Mark != (path.Mark{}) {
			fmt.Fprintf(&b, " mark %s", w.Packet.Mark)
		}
		for _, s := range w.Steps {
			fmt.Fprintf(&b, " | %s %s %s %s", s.Hook, s.Table, s.Chain, s.Does)
			if s.Unsure != "" {
				fmt.Fprintf(&b, " if %s", s.Unsure)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// save wraps rules into the tables of iptables.
func save(table, rules string) string {
	hooks := map[string]string{"raw": "PREROUTING OUTPUT", "mangle": "PREROUTING INPUT FORWARD OUTPUT POSTROUTING",
		"nat": "PREROUTING INPUT OUTPUT POSTROUTING", "filter": "INPUT FORWARD OUTPUT"}[table]
	text := "*" + table + "\n"
	for hook := range strings.FieldsSeq(hooks) {
		text += ":" + hook + " ACCEPT [0:0]\n"
	}
	for line := range strings.SplitSeq(rules, "\n") {
		if strings.HasPrefix(line, ":") {
			text += line + "\n"
		}
	}
	for line := range strings.SplitSeq(rules, "\n") {
		if strings.HasPrefix(line, "-A") {
			text += line + "\n"
		}
	}
	return text + "COMMIT\n"
}

// nft returns a table inet t with one base chain, whose rules are JSON.
func nft(kind, hook string, priority int, policy string, rules ...string) string {
	text := fmt.Sprintf(`{"nftables": [{"chain": {"family": "inet", "table": "t", "name": "sub", "handle": 1}},
{"chain": {"family": "inet", "table": "t", "name": "c", "handle": 2, "type": %q, "hook": %q, "prio": %d, "policy": %q}}`, kind, hook, priority, policy)
	for i, r := range rules {
		chain := "c"
		if rest, is := strings.CutPrefix(r, "sub "); is {
			chain, r = "sub", rest
		}
		text += fmt.Sprintf(`,{"rule": {"family": "inet", "table": "t", "chain": %q, "handle": %d, "expr": [%s]}}`, chain, i+3, r)
	}
	return text + "]}"
}

// TestWalk compares the ways of a packet from 10.244.1.7 to 10.96.0.10:53/udp with literals.
func TestWalk(t *testing.T) {
	const toVIP = `{"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "daddr"}}, "right": "10.96.0.10"}}`
	for _, c := range []struct {
		what  string
		rules []string
		own   bool // the node sends it
		want  string
	}{
		{what: "no rules", want: "1.00 forwarded\n"},
		{what: "raw", rules: []string{save("raw", "-A PREROUTING -i cni0 -j DROP")}, want: "1.00 dropped | PREROUTING raw PREROUTING DROP\n"},
		{what: "raw comes before conntrack", rules: []string{save("raw", "-A PREROUTING -m conntrack --ctstate NEW -j DROP")}, want: "1.00 forwarded\n"},
		{what: "untracked packets skip nat", rules: []string{save("raw", "-A PREROUTING -p udp -j CT --notrack"),
			save("nat", "-A PREROUTING -j DNAT --to-destination 10.244.1.1:53")}, want: "1.00 forwarded | PREROUTING raw PREROUTING CT\n"},
		{what: "mangle comes before nat", rules: []string{save("nat", "-A PREROUTING -m mark --mark 0x1 -j DNAT --to-destination 10.244.1.1:5353"),
			save("mangle", "-A PREROUTING -j MARK --set-xmark 0x1/0xff")},
			want: "1.00 forwarded to 10.244.1.1:5353 mark 0x1 | PREROUTING mangle PREROUTING MARK | PREROUTING nat PREROUTING DNAT\n"},
		{what: "FORWARD sees the new destination", rules: []string{save("nat", "-A PREROUTING -d 10.96.0.10/32 -j DNAT --to-destination 10.244.1.1"),
			save("filter", "-A FORWARD -d 10.244.1.1/32 -m conntrack --ctstate DNAT -j REJECT\n-A FORWARD -j ACCEPT")},
			want: "1.00 rejected to 10.244.1.1:53 | PREROUTING nat PREROUTING DNAT | FORWARD filter FORWARD REJECT\n"},
		{what: "INPUT", rules: []string{save("nat", "-A PREROUTING -j REDIRECT --to-ports 5353"), save("filter", "-A INPUT -p udp -m udp --dport 5353 -j DROP")},
			want: "1.00 dropped to invalid IP:5353 | PREROUTING nat PREROUTING REDIRECT | INPUT filter INPUT DROP\n"},
		{what: "POSTROUTING", rules: []string{save("nat", "-A POSTROUTING -s 10.244.0.0/16 ! -d 10.244.0.0/16 -j MASQUERADE")},
			want: "1.00 forwarded masqueraded | POSTROUTING nat POSTROUTING MASQUERADE\n"},
		{what: "OUTPUT", own: true, rules: []string{save("nat", "-A OUTPUT -d 10.96.0.10/32 -j DNAT --to-destination 10.244.1.1:53\n-A PREROUTING -j ACCEPT"),
			save("filter", "-A OUTPUT -d 10.96.0.0/12 -j DROP\n-A FORWARD -j DROP")},
			want: "1.00 forwarded to 10.244.1.1:53 | OUTPUT nat OUTPUT DNAT\n"},
		{what: "jump, return and goto", rules: []string{save("filter", ":A - [0:0]\n:B - [0:0]\n-A FORWARD -g A\n-A FORWARD -j DROP\n-A A -j B\n"+
			"-A A -p udp -j RETURN\n-A A -j DROP\n-A B -p tcp -j DROP")}, want: "1.00 forwarded | FORWARD filter FORWARD A | FORWARD filter A RETURN\n"},
		{what: "a share of the packets", rules: []string{save("nat", "-A PREROUTING -m statistic --mode random --probability 0.25 -j DNAT --to-destination 10.244.1.1:53\n"+
			"-A PREROUTING -j DNAT --to-destination 10.244.1.2:53")},
			want: "0.75 forwarded to 10.244.1.2:53 | PREROUTING nat PREROUTING DNAT\n0.25 forwarded to 10.244.1.1:53 | PREROUTING nat PREROUTING DNAT\n"},
		{what: "an ipset", rules: []string{save("filter", "-A FORWARD -m set --match-set x src -j DROP")},
			want: "? dropped | FORWARD filter FORWARD DROP if -m set --match-set x src\n? forwarded\n"},
		{what: "an ipset that decides nothing", rules: []string{save("filter", ":A - [0:0]\n-A FORWARD -m set --match-set x src -j A\n-A A -p tcp -j DROP")},
			want: "1.00 forwarded\n"},
		{what: "an ipset that decides nothing, before a share", rules: []string{save("filter", ":A - [0:0]\n-A FORWARD -m set --match-set x src -j A\n"+
			"-A FORWARD -m statistic --mode nth --every 4 --packet 0 -j DROP\n-A A -p tcp -j DROP")},
			want: "0.75 forwarded\n0.25 dropped | FORWARD filter FORWARD DROP\n"},
		{what: "the first translation wins, and its backend is not known", rules: []string{"# Generated by iptables-save v1.8.9\n" + save("nat", "-A PREROUTING -j DNAT --to-destination 10.244.1.2:53"),
			"# Generated by iptables-save v1.8.9 (nf_tables)\n" + save("nat", "-A PREROUTING -j DNAT --to-destination 10.244.1.1:53")},
			want: "? forwarded to 10.244.1.2:53 | PREROUTING nat PREROUTING DNAT\n? forwarded to 10.244.1.1:53 | PREROUTING nat PREROUTING DNAT\n"},
		{what: "both backends", rules: []string{"# Generated by iptables-save v1.8.9\n" + save("nat", "-A PREROUTING -j ACCEPT"),
			"# Generated by iptables-save v1.8.9 (nf_tables)\n" + save("nat", "-A PREROUTING -j DNAT --to-destination 10.244.1.1:53")},
			want: "1.00 forwarded to 10.244.1.1:53 | PREROUTING nat PREROUTING ACCEPT | PREROUTING nat PREROUTING DNAT\n"},
		{what: "nftables: a zone of conntrack", rules: []string{nft("filter", "prerouting", -300, "accept",
			`{"mangle": {"key": {"ct": {"key": "zone"}}, "value": 3}}`)}, want: "1.00 forwarded | PREROUTING inet t c CT zone set\n"},
		{what: "nftables: accept ends its own chain only", rules: []string{nft("filter", "forward", -10, "accept", `{"accept": null}`),
			save("filter", "-A FORWARD -j DROP")}, want: "1.00 dropped | FORWARD inet t c accept | FORWARD filter FORWARD DROP\n"},
		{what: "nftables: a dormant table as nft 1.0.6 prints it", rules: []string{strings.Replace(nft("filter", "forward", 10, "drop"), `[{"chain"`,
			`[{"table": {"family": "inet", "name": "t", "flags": "\u0001x"}}, {"chain"`, 1)}, want: "1.00 forwarded\n"},
		{what: "nftables: a table with an owner", rules: []string{strings.Replace(nft("filter", "forward", 10, "drop"), `[{"chain"`,
			`[{"table": {"family": "inet", "name": "t", "flags": "owner"}}, {"chain"`, 1)}, want: "1.00 dropped | FORWARD inet t c policy DROP\n"},
		{what: "nftables: dnat to a map without the key", rules: []string{nft("nat", "prerouting", -100, "accept",
			`{"dnat": {"addr": {"map": {"key": {"payload": {"protocol": "udp", "field": "dport"}}, "data": {"set": [[8088, "10.9.9.9"]]}}}}}`)},
			want: "1.00 forwarded\n"},
		{what: "nftables: dnat to a map with the key", rules: []string{nft("nat", "prerouting", -100, "accept",
			`{"dnat": {"addr": {"map": {"key": {"payload": {"protocol": "udp", "field": "dport"}}, "data": {"set": [[53, {"concat": ["10.9.9.9", 54]}]]}}}}}`)},
			want: "1.00 forwarded to 10.9.9.9:54 | PREROUTING inet t c dnat\n"},
		{what: "nftables: dnat to a map that is not in the listing", rules: []string{nft("nat", "prerouting", -100, "accept",
			`{"dnat": {"addr": {"map": {"key": {"payload": {"protocol": "udp", "field": "dport"}}, "data": "@m"}}}}`)},
			want: "? forwarded\n? delivered to invalid IP:53 | PREROUTING inet t c dnat\n? forwarded to invalid IP:53 | PREROUTING inet t c dnat\n"},
		{what: "nftables: dnat to a port of a map", rules: []string{nft("nat", "prerouting", -100, "accept",
			`{"dnat": {"addr": "10.9.9.9", "port": {"map": {"key": {"payload": {"protocol": "udp", "field": "dport"}}, "data": {"set": [[80, 8080]]}}}}}`)},
			want: "? forwarded\n? delivered to invalid IP:53 | PREROUTING inet t c dnat if dnat to a port of a map\n" +
				"? forwarded to invalid IP:53 | PREROUTING inet t c dnat if dnat to a port of a map\n"},
		{what: "nftables: dnat to an address of the other family", rules: []string{nft("nat", "prerouting", -100, "accept",
			`{"dnat": {"family": "ip6", "addr": "fd00::9"}}`)}, want: "1.00 forwarded\n"},
		{what: "nftables: snat to a map without the key", rules: []string{nft("nat", "postrouting", 100, "accept",
			`{"snat": {"addr": {"map": {"key": {"payload": {"protocol": "ip", "field": "saddr"}}, "data": {"set": [["172.30.0.1", "10.9.9.9"]]}}}}}`)},
			want: "1.00 forwarded\n"},
		{what: "nftables: a field of the other family", rules: []string{nft("filter", "forward", 0, "accept",
			`{"match": {"op": "!=", "left": {"payload": {"protocol": "ip6", "field": "saddr"}}, "right": "fd00::1"}}, {"drop": null}`,
			`{"match": {"op": "==", "left": {"payload": {"protocol": "ip6", "field": "nexthdr"}}, "right": "udp"}}, {"drop": null}`,
			`{"match": {"op": "<", "left": {"payload": {"protocol": "ip6", "field": "hoplimit"}}, "right": 128}}, {"drop": null}`,
			`{"set": {"op": "update", "elem": {"payload": {"protocol": "ip6", "field": "saddr"}}, "set": "@seen"}}, {"drop": null}`,
			`{"vmap": {"key": {"payload": {"protocol": "ip6", "field": "nexthdr"}}, "data": {"set": [["udp", {"drop": null}]]}}}`)},
			want: "1.00 forwarded\n"},
		{what: "nftables: the states of a packet, in three forms", rules: []string{nft("filter", "forward", 0, "accept",
			`{"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": ["established", "related"]}}, {"drop": null}`,
			`{"match": {"op": "!", "left": {"ct": {"key": "state"}}, "right": "new"}}, {"drop": null}`,
			`{"match": {"op": "!", "left": {"ct": {"key": "state"}}, "right": ["established", "related"]}}, {"drop": null}`)},
			want: "1.00 dropped | FORWARD inet t c drop\n"},
		{what: "nftables: the first destination", rules: []string{nft("nat", "prerouting", -100, "accept", toVIP+`, {"dnat": {"addr": "10.9.9.9", "port": 53}}`),
			strings.ReplaceAll(nft("filter", "forward", 0, "accept", `{"match": {"op": "==", "left": {"ct": {"key": "ip daddr", "dir": "original"}},
"right": {"prefix": {"addr": "10.96.0.0", "len": 12}}}}, {"drop": null}`), `"t"`, `"u"`)},
			want: "1.00 dropped to 10.9.9.9:53 | PREROUTING inet t c dnat | FORWARD inet u c drop\n"},
		{what: "nftables: a unicast address and a time to live", rules: []string{nft("filter", "forward", 0, "accept",
			`{"match": {"op": ">", "left": {"payload": {"protocol": "ip", "field": "ttl"}}, "right": 64}}, {"drop": null}`,
			`{"match": {"op": "<", "left": {"payload": {"protocol": "ip", "field": "ttl"}}, "right": 128}}, {"match": {"op": "==",
"left": {"fib": {"result": "type", "flags": "daddr"}}, "right": "unicast"}}, {"drop": null}`)},
			want: "1.00 dropped | FORWARD inet t c drop\n"},
		{what: "nftables: a dormant table", rules: []string{strings.Replace(nft("filter", "forward", 10, "drop"), `[{"chain"`,
			`[{"table": {"family": "inet", "name": "t", "flags": ["dormant"]}}, {"chain"`, 1)}, want: "1.00 forwarded\n"},
		{what: "nftables: policy", rules: []string{nft("filter", "forward", 10, "drop", `{"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": ["established", "related"]}}, {"accept": null}`)},
			want: "1.00 dropped | FORWARD inet t c policy DROP\n"},
		{what: "nftables: a map of verdicts", rules: []string{nft("filter", "prerouting", 0, "accept",
			`{"vmap": {"key": {"meta": {"key": "l4proto"}}, "data": {"set": [["tcp", {"accept": null}], ["udp", {"jump": {"target": "sub"}}]]}}}`, `sub {"drop": null}`)},
			want: "1.00 dropped | PREROUTING inet t c jump sub | PREROUTING inet t sub drop\n"},
		{what: "nftables: nat runs at its own priority", rules: []string{nft("nat", "prerouting", -300, "accept", toVIP+`, {"dnat": {"family": "ip", "addr": "10.9.9.9", "port": 53}}`),
			save("mangle", "-A PREROUTING -d 10.9.9.9/32 -j DROP")}, want: "1.00 forwarded to 10.9.9.9:53 | PREROUTING inet t c dnat\n"},
		{what: "nftables: a rate limit", rules: []string{nft("filter", "forward", 0, "accept", `{"limit": {"rate": 5}}, {"drop": null}`)},
			want: "? dropped | FORWARD inet t c drop if limit\n? forwarded\n"},
		{what: "nftables: a rate limit of each address", rules: []string{nft("filter", "forward", 0, "accept", `{"set": {"op": "update",
"elem": {"payload": {"protocol": "ip", "field": "saddr"}}, "set": "@flood", "stmt": [{"limit": {"rate": 200, "inv": true}}]}}, {"drop": null}`)},
			want: "? dropped | FORWARD inet t c drop if update with limit\n? forwarded\n"},
		{what: "nftables: a set of clients", rules: []string{nft("filter", "forward", 0, "accept",
			`{"set": {"op": "update", "elem": {"payload": {"protocol": "ip", "field": "saddr"}}, "set": "@seen", "stmt": [{"counter": null}]}}, {"drop": null}`)},
			want: "1.00 dropped | FORWARD inet t c drop\n"},
		{what: "nftables: a quota", rules: []string{nft("filter", "forward", 0, "accept", `{"quota": {"val": 1, "val_unit": "mbytes", "inv": true}}, {"drop": null}`)},
			want: "? dropped | FORWARD inet t c drop if quota\n? forwarded\n"},
		{what: "nftables: numgen", rules: []string{nft("filter", "forward", 0, "accept",
			`{"match": {"op": "<", "left": {"numgen": {"mode": "random", "mod": 10, "offset": 0}}, "right": 4}}, {"drop": null}`)},
			want: "0.60 forwarded\n0.40 dropped | FORWARD inet t c drop\n"},
	} {
		t.Run(c.what, func(t *testing.T) {
			rules := path.New(parse(t, c.rules...), ruleset.IPv4, path.Node{Own: func(netip.Addr) path.Answer { return path.No }})
			p := path.Packet{Source: path.Addr(netip.MustParseAddr("10.244.1.7")), Destination: path.Addr(netip.MustParseAddr("10.96.0.10")),
				Protocol: "udp", SourcePort: 40000, Port: 53, In: "cni0", State: path.StateNew, Own: c.own}
			if got := show(rules.Walk(p, "", nil)); got != c.want {
				t.Errorf("got\n%swant\n%s", got, c.want)
			}
		})
	}
}

// TestEstablished checks that later packets of a connection do not pass nat.
func TestEstablished(t *testing.T) {
	rules := path.New(parse(t, save("nat", "-A PREROUTING -j DROP"), save("filter", "-A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT\n-A FORWARD -j DROP")),
		ruleset.IPv4, path.Node{})
	got := show(rules.Walk(path.Packet{State: path.StateEstablished, ToNode: path.No}, "", nil))
	if want := "1.00 forwarded | FORWARD filter FORWARD ACCEPT\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestManyEnds: a packet that 3,000 rules may drop has at most a thousand ends, and the one that passes them all is among them.
func TestManyEnds(t *testing.T) {
	var rules strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&rules, "-A FORWARD -d 198.18.%d.%d/32 -j DROP\n", i/250, i%250+1)
	}
	ways := path.New(parse(t, save("filter", rules.String())), ruleset.IPv4, path.Node{}).Walk(path.Packet{State: path.StateNew, ToNode: path.No}, "", nil)
	forwarded := slices.ContainsFunc(ways, func(w path.Way) bool { return w.End == path.Forwarded })
	if len(ways) > 1001 || !forwarded {
		t.Errorf("%d ways, forwarded: %v", len(ways), forwarded)
	}
}

// TestPodLinks: the links of all Pods that rules name, as far as the node has them.
func TestPodLinks(t *testing.T) {
	sets := parse(t, save("filter", "-A FORWARD -i cali+ -j ACCEPT\n-A FORWARD -i cni0 -j ACCEPT\n-A FORWARD -i eth0 -j ACCEPT\n-A FORWARD -i veth77 -j DROP"))
	for _, c := range []struct{ present, want []string }{
		{nil, []string{"cali+", "cni0"}},
		{[]string{"eth0", "cni0"}, []string{"cni0"}},
		{[]string{"eth0", "cali12ab"}, []string{"cali+"}},
	} {
		if got := path.PodLinks(sets, ruleset.IPv4, c.present); !slices.Equal(got, c.want) {
			t.Errorf("with %v: %v, want %v", c.present, got, c.want)
		}
	}
}

// TestFlags checks conditions about the flags of TCP with the first packet of a connection, which has SYN alone.
func TestFlags(t *testing.T) {
	const flags = `{"payload": {"protocol": "tcp", "field": "flags"}}`
	for _, c := range []struct{ op, left, right, want string }{
		{"in", flags, `"syn"`, "dropped"},
		{"in", flags, `["syn", "ack"]`, "dropped"},
		{"in", flags, `"ack"`, "forwarded"},
		{"==", flags, `"syn"`, "dropped"},
		{"==", flags, `["syn", "ack"]`, "forwarded"},
		{"!=", flags, `"syn"`, "forwarded"},
		{"!", flags, `["rst", "ack"]`, "dropped"},
		{"==", `{"&": [` + flags + `, ["fin", "syn", "rst", "ack"]]}`, `"syn"`, "dropped"},
		{"!=", `{"&": [` + flags + `, {"|": ["fin", "syn"]}]}`, `"syn"`, "forwarded"},
		{"==", `{"&": [` + flags + `, ["fin", "ack"]]}`, `"ack"`, "forwarded"},
	} {
		rule := fmt.Sprintf(`{"match": {"op": %q, "left": %s, "right": %s}}, {"drop": null}`, c.op, c.left, c.right)
		rules := path.New(parse(t, nft("filter", "forward", 0, "accept", rule)), ruleset.IPv4, path.Node{})
		ways := rules.Walk(path.Packet{State: path.StateNew, ToNode: path.No, Protocol: "tcp"}, "", nil)
		if len(ways) != 1 || !ways[0].Sure || ways[0].End.String() != c.want {
			t.Errorf("%s: %+v", rule, ways)
		}
	}
}

// TestLossesElsewhere checks that a rule for every destination outside the range of Pods drops packets to other machines.
func TestLossesElsewhere(t *testing.T) {
	pods := netip.MustParsePrefix("10.244.0.0/16")
	for rule, lost := range map[string]bool{
		"-A FORWARD -s 10.244.0.0/16 ! -d 10.244.0.0/16 -j DROP": true,
		"-A FORWARD -s 10.244.0.0/16 ! -d 10.0.0.0/8 -j DROP":    false,
		"-A FORWARD -d 10.244.0.0/16 -j DROP":                    false,
	} {
		rules := path.New(parse(t, save("filter", rule)), ruleset.IPv4, path.Node{})
		if got := len(rules.Losses(path.Packet{Source: pods, State: path.StateNew})) > 0; got != lost {
			t.Errorf("%s: lost: %v", rule, got)
		}
	}
}
