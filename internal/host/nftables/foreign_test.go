package nftables_test

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/host/nftables"
	"nodegate/internal/require"
	"nodegate/internal/ruleset"
)

// TestForeign loads tables of another program and reads them over netlink. Each rule is followed by
// its text; a word with a question mark is a condition that is not known.
func TestForeign(t *testing.T) {
	n := scratch(t)
	many := make([]string, 3000)
	for i := range many {
		many[i] = fmt.Sprintf("198.18.%d.%d", i/250, i%250)
	}
	rules := [][2]string{
		{`iifname "cni0" drop`, "meta iifname cni0 drop"},
		{"iif lo accept", "meta iif lo accept"},
		{`oifname != "eth*" counter reject with icmpx type admin-prohibited`, "meta oifname != eth* reject"},
		{"ip saddr 10.0.0.0/8 tcp dport 80-90 log accept", "meta nfproto ipv4 ip saddr 10.0.0.0/8 meta l4proto tcp th dport 80-65535 th dport 0-90 accept"},
		{"ip6 daddr fd00::/64 udp sport != 53 drop", "meta nfproto ipv6 ip6 daddr fd00::/64 meta l4proto udp th sport != 53 drop"},
		{"ip saddr 10.0.0.1-10.0.0.9 udp dport != 60-100 drop",
			"meta nfproto ipv4 ip saddr range 10.0.0.1, 255.255.255.255 ip saddr range 0.0.0.0, 10.0.0.9 meta l4proto udp th dport != 60-100 drop"},
		{"ct state established,related accept", "ct state established, related accept"},
		{"ct state vmap { new : jump sub, invalid : drop }", "ct state vmap { invalid : drop, new : jump sub }"},
		{"ip daddr vmap @chains", "meta nfproto ipv4 ip daddr vmap @chains"},
		{"ip daddr . tcp dport { 10.96.0.1 . 443, 10.96.0.10 . 53 } accept",
			"meta nfproto ipv4 meta l4proto tcp ip daddr . th dport { 10.96.0.1 . 443, 10.96.0.10 . 53 } accept"},
		{"ip saddr @blocked drop", "meta nfproto ipv4 ip saddr @blocked drop"},
		{"meta mark and 0x3 == 0x1 meta mark set mark or 0x4", "meta mark & 3 1 meta mark set meta mark & 4294967291 ^ 4"},
		{"ct mark set meta mark", "ct mark set meta mark"},
		{"meta l4proto icmp accept", "meta l4proto 1 accept"},
		{"fib daddr type local accept", "fib daddr type local accept"},
		{"fib saddr . iif oif missing drop", "?fib ?cmp drop"},
		{"limit rate over 10/second drop", "limit drop"},
		{"add @seen { ip saddr limit rate over 10/second } drop", "meta nfproto ipv4 ?dynset drop"},
		{"ip saddr @seen drop", "meta nfproto ipv4 ?lookup drop"},
		{"ip dscp 10 drop", "meta nfproto ipv4 ?payload ?bitwise ?cmp drop"},
		{"ip daddr set 10.0.0.1", "meta nfproto ipv4 ?payload"},
		{"tcp option maxseg size set 1400", "?exthdr"},
		{"quota over 1 mbytes drop", "?quota drop"},
		{"tcp flags syn drop", "meta l4proto tcp tcp flags syn drop"},
		{"tcp flags & (fin | syn | rst | ack) == syn drop", "meta l4proto tcp tcp flags & fin, syn, rst, ack == syn drop"},
		{"tcp flags != syn drop", "meta l4proto tcp tcp flags != syn drop"},
		{"ct state ! established,related drop", "ct state ! established, related drop"},
		{"ip ttl < 128 drop", "meta nfproto ipv4 ip ttl < 128 drop"},
		{"ip ttl 64 drop", "meta nfproto ipv4 ip ttl 64 drop"},
		{"ct original ip daddr 10.96.0.0/12 drop", "ct original ip daddr 10.96.0.0/12 drop"},
		{"goto sub", "goto sub"},
	}
	text := "table inet other {\n\tset blocked { type ipv4_addr; flags interval; elements = { 192.0.2.0/24, 198.51.100.7 }; }\n" +
		"\tset seen { type ipv4_addr; flags dynamic; size 128; }\n\tset many { type ipv4_addr; elements = { " + strings.Join(many, ", ") + " }; }\n" +
		"\tchain sub { ip daddr @many drop; }\n\tmap chains { type ipv4_addr : verdict; elements = { 10.96.0.1 : jump sub, 10.96.0.2 : drop }; }\n" +
		"\tchain c {\n\t\ttype filter hook prerouting priority -5; policy drop;\n"
	for _, r := range rules {
		text += "\t\t" + r[0] + "\n"
	}
	text += "\t}\n}\ntable ip sleeping { flags dormant; chain c { type filter hook forward priority 0; policy drop; }\n}\n" +
		"table ip kube-proxy { chain c { type filter hook input priority 0; policy drop; }\n}\n" +
		"table ip filter { chain FORWARD { type filter hook forward priority 0; policy drop; }\n}\ntable ip nothing { chain c { drop; }\n}\n" +
		"table netdev n { chain c { drop; }\n}\n" +
		"table netdev links { chain in { type filter hook ingress device lo priority 0; policy drop; ip saddr 192.0.2.1 accept; }\n}\n" +
		"table bridge filter { chain FORWARD { type filter hook forward priority 0; policy accept; drop; }\n}\n" +
		"table inet early { chain in { type filter hook ingress device lo priority 0; policy accept; drop; }\n}\n" +
		"table ip nats {\n\tchain pre { type nat hook prerouting priority -100; dnat to 10.0.0.1\n tcp dport 80 dnat to 10.0.0.1:8080\n tcp dport 1 redirect to :2\n }\n" +
		"\tchain post { type nat hook postrouting priority 100; oifname \"x\" masquerade\n snat to 192.0.2.1\n }\n}\n"
	err := n.Do(t.Context(), func() error {
		if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		if _, err := nft(text, "-f", "-"); err != nil {
			return err
		}
		others, err := nftables.ReadOthers(t.Context())
		if err != nil || len(others.Drops) > 0 {
			t.Errorf("chains of hook forward that drop: %q, %v", others.Drops, err)
		}
		policies, err := nftables.ForwardPolicies(t.Context())
		if err != nil || fmt.Sprint(policies) != "[ip filter FORWARD]" {
			t.Errorf("policies of hook forward: %q, %v", policies, err)
		}
		tables, err := nftables.ReadForeign(t.Context())
		if err != nil {
			return err
		}
		shown := ""
		for _, table := range tables {
			for _, c := range table.Chains {
				if len(c.Rules) < 2 && c.Hook != "" {
					shown += fmt.Sprint(table.Family, " ", table.Name, " ", c.Name, " ", c.Hook, c.Devices, " ", c.Policy)
					for _, r := range c.Rules {
						shown += ", " + r.Text
					}
					shown += "\n"
				}
			}
		}
		if want := "netdev links in ingress[lo] drop, meta protocol ip ip saddr 192.0.2.1 accept\nbridge filter FORWARD forward[] accept, drop\n" +
			"inet early in ingress[lo] accept, drop\n"; shown != want {
			t.Errorf("chains at links and bridges: got\n%swant\n%s", shown, want)
		}
		tables = slices.DeleteFunc(tables, func(t *ruleset.NFTTable) bool {
			return t.Family == "netdev" || t.Family == "bridge" || t.Name == "early"
		})
		if len(tables) != 2 || tables[0].Name != "other" || tables[1].Name != "nats" {
			t.Fatalf("tables: %+v", tables)
		}
		c := tables[0].Chain("c")
		if c.Hook != "prerouting" || c.Priority != -5 || c.Policy != "drop" || c.Type != "filter" || len(c.Rules) != len(rules) {
			t.Fatalf("chain: %+v", c)
		}
		for i, r := range rules {
			assert.Equal(t, c.Rules[i].Text, r[1], "%s", r[0])
		}
		sets := tables[0].Sets
		if got := fmt.Sprint(sets["blocked"].Elements[0], " ", sets["blocked"].Elements[1]); got != "192.0.2.0/24 198.51.100.7" || sets["seen"] != nil ||
			len(sets["many"].Elements) != 3000 || sets["chains"].Elements[0].Verdict != "jump" || sets["chains"].Elements[0].Target != "sub" {
			t.Errorf("sets: %s, %+v", got, sets["chains"])
		}
		got := ""
		for _, name := range []string{"pre", "post"} {
			for _, r := range tables[1].Chain(name).Rules {
				got += r.Text + "\n"
			}
		}
		if want := "dnat to 10.0.0.1:\nmeta l4proto tcp th dport 80 dnat to 10.0.0.1:8080\nmeta l4proto tcp th dport 1 redirect to :2\n" +
			"meta oifname x masquerade\nsnat to 192.0.2.1\n"; got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
		return nil
	})
	require.NoError(t, err)
}
