package nftables_test

import (
	"fmt"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/host/nftables"
)

// forms are rules in the form of kube-proxy 1.29 to 1.36, for one family: %[1]s is ip or ip6, %[2]s
// the type of its addresses, %[3]s to %[8]s are addresses, %[9]s and %[10]s are networks whose
// prefix ends at a byte boundary and inside a byte.
const forms = `
table %[1]s kube-proxy {
	comment "rules for kube-proxy"
	set cluster-ips { type %[2]s; comment "Active ClusterIPs"; elements = { %[3]s, %[4]s comment "x y", %[5]s }; }
	set nodeport-ips { type %[2]s; elements = { %[3]s }; }
	set hairpin-connections { type %[2]s . %[2]s . inet_proto . inet_service; elements = { %[6]s . %[6]s . sctp . 65535 }; }
	set affinity-AAAAAAAA-ns/s/tcp/__e { type %[2]s; size 65535; flags dynamic,timeout; timeout 3h; elements = { %[8]s expires 1h, %[7]s timeout 5s }; }
	set ranges { type %[2]s; flags interval; elements = { %[9]s, %[10]s }; }
	map no-endpoint-services { type %[2]s . inet_proto . inet_service : verdict
		elements = { %[3]s . tcp . 80 comment "ns/drop" : drop, %[4]s . udp . 53 comment "ns/reject:dns" : goto reject-chain }; }
	map no-endpoint-nodeports { type inet_proto . inet_service : verdict; }
	map firewall-ips { type %[2]s . inet_proto . inet_service : verdict; }
	map service-ips { type %[2]s . inet_proto . inet_service : verdict
		elements = { %[3]s . tcp . 443 : goto service-AAAAAAAA-ns/s/tcp/p, %[4]s . sctp . 1 : goto local-AAAAAAAA-ns/s/tcp/p,
			%[5]s . udp . 65535 : goto external-AAAAAAAA-ns/s/tcp/p }; }
	map service-nodeports { type inet_proto . inet_service : verdict; elements = { tcp . 30080 : goto external-AAAAAAAA-ns/s/tcp/p }; }

	chain filter-prerouting { type filter hook prerouting priority -110; policy accept; ct state new jump firewall-check; }
	chain filter-input { type filter hook input priority filter; ct state new,established counter jump firewall-check; }
	chain filter-forward { type filter hook forward priority 5; ct state invalid drop; }
	chain nat-output { type nat hook output priority -100; jump services; }
	chain nat-postrouting { type nat hook postrouting priority srcnat; jump masquerading; }
	chain empty { }
	chain firewall-check { %[1]s daddr . meta l4proto . th dport vmap @firewall-ips; }
	chain reject-chain { reject; }
	chain mark-for-masquerade { mark set mark or 0x4000; }
	chain masquerading {
		mark and 0x4000 == 0 return
		mark set mark xor 0x4000
		masquerade fully-random
		masquerade
		mark and 0x80000000 != 0 mark set mark xor 0x80000000 masquerade fully-random
		ct status dnat %[1]s saddr . %[1]s daddr . meta l4proto . th dport @hairpin-connections masquerade fully-random
	}
	chain services {
		%[1]s daddr @cluster-ips mark set mark or 0x4000 comment "masquerade all clusterIP traffic"
		%[1]s daddr @cluster-ips %[1]s saddr != %[9]s mark set mark or 0x1
		%[1]s daddr @cluster-ips %[1]s saddr != %[10]s mark set mark or 0x4000
		%[1]s daddr @cluster-ips iifname != "cni0" mark set mark or 0x4000
		%[1]s daddr @cluster-ips iifname != "cali*" mark set mark or 0x4000
		iifname "eth0" oifname "cni*" accept
		%[1]s daddr . meta l4proto . th dport vmap @service-ips
		fib daddr type local %[1]s daddr != %[3]s meta l4proto . th dport vmap @service-nodeports
		fib daddr type local %[1]s daddr != %[9]s meta l4proto . th dport vmap @service-nodeports
		%[1]s daddr @nodeport-ips meta l4proto . th dport vmap @no-endpoint-nodeports
		%[1]s daddr @cluster-ips reject
		%[1]s daddr { %[9]s } drop
		%[1]s daddr { %[10]s } drop
		%[1]s daddr != @cluster-ips continue
		limit rate 5/second accept
		log prefix "x" accept
	}
	chain service-AAAAAAAA-ns/s/tcp/p {
		%[1]s daddr %[3]s tcp dport 443 %[1]s saddr != %[10]s jump mark-for-masquerade
		%[1]s daddr %[3]s udp dport 53 %[1]s saddr != %[9]s jump mark-for-masquerade
		%[1]s daddr %[3]s sctp dport 5060 jump mark-for-masquerade
		%[1]s daddr %[3]s %[1]s saddr != %[10]s jump mark-for-masquerade
		%[1]s saddr @affinity-AAAAAAAA-ns/s/tcp/__e goto endpoint-AAAAAAAA-ns/s/tcp/p__e
		numgen random mod 1 vmap { 0 : goto endpoint-AAAAAAAA-ns/s/tcp/p__e }
		meta l4proto tcp dnat %[1]s addr . port to numgen random mod 2 map { 0 : %[6]s . 80, 1 : %[7]s . 8080 }
		numgen random mod 300 vmap { %[11]s }
		numgen inc mod 2 vmap { 0 : drop, 1 : accept }
		numgen random mod 5 vmap { 0 : drop, 1 : accept, 4 : drop }
		numgen random mod 64 vmap { %[14]s }
		numgen random mod 65 vmap { %[15]s }
	}
	chain local-AAAAAAAA-ns/s/tcp/p { }
	chain external-AAAAAAAA-ns/s/tcp/p {
		%[1]s saddr %[10]s goto service-AAAAAAAA-ns/s/tcp/p
		fib saddr type local jump mark-for-masquerade
		fib saddr type local goto service-AAAAAAAA-ns/s/tcp/p
		goto local-AAAAAAAA-ns/s/tcp/p
	}
	chain firewall-AAAAAAAA-ns/s/tcp/p {
		%[1]s saddr != { %[9]s, %[10]s, %[8]s } drop
		%[1]s saddr != { %[3]s, %[4]s } drop
		%[1]s saddr != { %[6]s-%[7]s, %[8]s } drop
		%[1]s saddr { %[12]s } accept
	}
	chain endpoint-AAAAAAAA-ns/s/tcp/p__e {
		%[1]s saddr %[6]s jump mark-for-masquerade
		update @affinity-AAAAAAAA-ns/s/tcp/__e { %[1]s saddr }
		add @affinity-AAAAAAAA-ns/s/tcp/__e { %[1]s saddr timeout 5s }
		meta l4proto tcp dnat to %[13]s
		meta l4proto udp dnat to %[6]s
		meta l4proto sctp dnat to %[13]s
	}
}
`

// written returns the forms for a family.
func written(family string) string {
	var dispatch, many []string
	a := []any{"ip", "ipv4_addr", "10.96.0.1", "10.96.0.10", "203.0.113.7", "10.244.1.2", "10.244.1.9", "255.255.255.255", "10.244.0.0/16",
		"100.64.0.0/11"}
	single, to := "192.0.2.%d", "10.244.1.2:8080"
	if family == "ip6" {
		a = []any{"ip6", "ipv6_addr", "::1", "fd00:10:96::a", "2001:db8::7", "fd00:10:244:1::2", "fd00:10:244:1::9",
			"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "fd00:10:244::/56", "fd00:100::/43"}
		single, to = "2001:db8::1:%x", "[fd00:10:244:1::2]:8080"
	}
	for i := range 300 {
		dispatch = append(dispatch, fmt.Sprintf("%d : goto endpoint-AAAAAAAA-ns/s/tcp/p__e", i))
	}
	for i := range 20 {
		many = append(many, fmt.Sprintf(single, i*3))
	}
	return fmt.Sprintf(forms, append(a, strings.Join(dispatch, ", "), strings.Join(many, ", "), to,
		strings.Join(dispatch[:64], ", "), strings.Join(dispatch[:65], ", "))...)
}

// TestForms: handwritten rules in kube-proxy's form are equal over netlink and in the output of nft
// -j, for both families.
func TestForms(t *testing.T) {
	same(t, written("ip")+written("ip6"), []string{"ip", "ip6"})
}

// TestUnknown: an unknown construct is an error that names it and its position, never a guess.
func TestUnknown(t *testing.T) {
	for rule, want := range map[string]string{
		"tcp flags syn drop":                        `chain x, rule 2: expression "payload": unsupported form`,
		"meta l4proto tcp ip ttl 1 drop":            `chain x, rule 2: expression "payload": unsupported form`,
		"th dport 1-100 drop":                       `chain x, rule 2: expression "cmp": unsupported form`,
		"th dport != 1-100 drop":                    `chain x, rule 2: expression "range": unsupported expression`,
		"ip ttl 1 drop":                             `chain x, rule 2: expression "payload": unsupported form`,
		"ct state != new drop":                      `chain x, rule 2: expression "cmp": unsupported form`,
		"jhash ip saddr mod 2 vmap { 0 : drop }":    `chain x, rule 3: expression "hash": unsupported expression`,
		"dnat to 10.0.0.1-10.0.0.9":                 `chain x, rule 2: expression "nat": unsupported form`,
		"meta l4proto tcp masquerade to :1024-2048": `chain x, rule 2: expression "masq": unknown attribute 2`,
		"redirect": `chain x, rule 2: expression "redir": unsupported expression`,
		"ip saddr & 255.0.255.0 == 10.0.0.0 accept": `chain x, rule 2: expression "cmp": unsupported form`,
		"ip saddr < 10.0.0.1 accept":                `chain x, rule 2: expression "cmp": unsupported form`,
		"meta mark set ct mark":                     `chain x, rule 2: expression "ct": unsupported form`,
		"ip protocol icmp accept":                   `chain x, rule 2: expression "payload": unsupported form`,
		"meta l4proto icmp accept":                  `chain x, rule 2: expression "cmp": unknown value 01`,
	} {
		err := scratch(t).Do(t.Context(), func() error {
			hook := []any{"output", -100}
			if strings.Contains(rule, "masquerade") {
				hook = []any{"postrouting", 100}
			}
			if _, err := nft(fmt.Sprintf("table ip kube-proxy {\nchain x {\ntype nat hook %s priority %d\n"+rule+"\n}\n}\n", hook...), "-f",
				"-"); err != nil {
				return err
			}
			if _, err := nftables.Read(t.Context(), "ip"); err == nil || err.Error() != want {
				t.Errorf("%s:\n%v, want\n%s", rule, err, want)
			}
			return nil
		})
		assert.NoError(t, err)
	}
}
