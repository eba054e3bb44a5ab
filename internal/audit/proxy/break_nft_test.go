package proxy

import (
	"slices"
	"strings"
	"testing"
)

// nftBreakages lists faults of nftables mode. Each must give the named finding and no other.
var nftBreakages = []struct {
	name, want string
	edits      []edit
}{
	{"base chain missing", "kubeproxy.jump.missing",
		[]edit{del(`"chain".*"name": "nat-prerouting".*ip", "table": "kube-proxy|"family": "ip", "table": "kube-proxy", "name": ` +
			`"nat-prerouting"`), del(`"ip", "table": "kube-proxy", "chain": "nat-prerouting"`)}},
	{"base chain on another hook", "kubeproxy.jump.missing",
		[]edit{sub(`"ip", "table": "kube-proxy", "name": "nat-output"`, `"hook": "output"`, `"hook": "input"`)}},
	{"base chain with another priority",
		"kubeproxy.jump.missing", []edit{sub(`"ip", "table": "kube-proxy", "name": "filter-prerouting-pre-dnat"`, `-110`, `-90`)}},
	{"jump to services missing", "kubeproxy.jump.missing", []edit{del(`"ip", "table": "kube-proxy", "chain": "nat-prerouting"`)}},
	{"jump to masquerading missing", "kubeproxy.jump.missing", []edit{del(`"ip", "table": "kube-proxy", "chain": "nat-postrouting"`)}},
	{"no lookup in service-ips", "kubeproxy.chain.damaged", []edit{del(`"ip", "table": "kube-proxy".*"data": "@service-ips"`)}},
	{"no lookup in service-nodeports", "kubeproxy.chain.damaged",
		[]edit{del(`"ip", "table": "kube-proxy".*"data": "@service-nodeports"`)}},
	{"no lookup in no-endpoint-services",
		"kubeproxy.service.reject", []edit{del(`"ip", "table": "kube-proxy".*"data": "@no-endpoint-services"`)}},
	{"map missing", "kubeproxy.chain.damaged", []edit{del(`{"map": {"family": "ip", "name": "firewall-ips"`)}},
	{"modulus", "kubeproxy.chain.damaged", []edit{sub(`"chain": "service-CFIEJ2HK-prod/np/tcp/".*numgen`, `"mod": 3`, `"mod": 4`)}},
	{"key twice", "kubeproxy.chain.damaged", []edit{sub(`"chain": "service-CFIEJ2HK-prod/np/tcp/".*numgen`, `[2, {"goto"`, `[1, {"goto"`)}},
	{"endpoint twice", "kubeproxy.chain.damaged", []edit{sub(`"chain": "service-VTLL5JLX-prod/sticky/tcp/".*numgen`,
		`endpoint-CY263KL3-prod/sticky/tcp/__100.96.3.1/80`, `endpoint-XBV3KTXM-prod/sticky/tcp/__100.96.3.2/80`)}},
	{"dispatch missing", "kubeproxy.chain.damaged", []edit{del(`"chain": "service-CFIEJ2HK-prod/np/tcp/".*numgen`)}},
	{"another service's endpoint", "kubeproxy.chain.damaged", []edit{sub(`"chain": "service-CFIEJ2HK-prod/np/tcp/".*numgen`,
		`endpoint-672AFPA7-prod/np/tcp/__100.96.1.1/80`, `endpoint-OTFGYKFL-prod/itp/tcp/__100.96.4.1/80`)}},
	{"endpoint chain missing", "kubeproxy.chain.damaged",
		[]edit{del(`"name": "endpoint-672AFPA7-prod/np/tcp/`), delAll(`"chain": "endpoint-672AFPA7-prod/np/tcp/`)}},
	{"service chain missing", "kubeproxy.chain.damaged",
		[]edit{del(`"name": "service-QJDDRABM-prod/export/tcp/"`), delAll(`"chain": "service-QJDDRABM-prod/export/tcp/"`)}},
	{"dnat to another address", "kubeproxy.chain.damaged",
		[]edit{sub(`"chain": "endpoint-672AFPA7.*dnat`, `"addr": "100.96.1.1"`, `"addr": "100.96.1.9"`)}},
	{"dnat missing", "kubeproxy.chain.damaged", []edit{del(`"chain": "endpoint-672AFPA7.*dnat`)}},
	{"hairpin missing", "kubeproxy.chain.damaged", []edit{del(`"chain": "endpoint-672AFPA7.*mark-for`)}},
	{"hairpin of another address", "kubeproxy.chain.damaged",
		[]edit{sub(`"chain": "endpoint-672AFPA7.*mark-for`, `100.96.1.1"}`, `100.96.1.8"}`)}},
	{"endpoint flushed", "kubeproxy.chain.damaged", []edit{delAll(`"chain": "endpoint-672AFPA7`)}},
	{"other protocol", "kubeproxy.chain.damaged", []edit{sub(`"chain": "endpoint-672AFPA7.*dnat`, `"right": "tcp"`, `"right": "udp"`)}},
	{"rejected and dispatched", "kubeproxy.chain.damaged",
		[]edit{sub(`{"map": {"family": "ip", "name": "no-endpoint-services"`, `"elem": [`,
			`"elem": [[{"elem": {"val": {"concat": ["10.104.34.55", "tcp", 80]}, "comment": "prod/np"}}, {"goto": {"target": "reject-chain"}}], `)}},
	{"reject-chain accepts", "kubeproxy.service.reject", []edit{sub(`"family": "ip", "table": "kube-proxy", "chain": "reject-chain"`,
		`{"reject": {"type": "icmp", "expr": "port-unreachable"}}`, `{"accept": null}`)}},
	{"not masqueraded", "kubeproxy.chain.damaged", []edit{del(`"chain": "service-CFIEJ2HK-prod/np/tcp/".*mark-for`)}},
	{"ClusterIP differs", "kubeproxy.chain.damaged",
		[]edit{sub(`"chain": "service-CFIEJ2HK-prod/np/tcp/".*mark-for`, `10.104.34.55`, `10.104.34.56`)}},
	{"set lacks a ClusterIP", "kubeproxy.chain.damaged",
		[]edit{sub(`{"set": {"family": "ip", "name": "cluster-ips"`, `"10.104.34.55"`, `"10.96.0.10"`)}},
	{"set has another ClusterIP", "kubeproxy.chain.damaged",
		[]edit{sub(`{"set": {"family": "ip", "name": "cluster-ips"`, `"10.104.34.55"`, `"10.104.34.55", "10.104.34.99"`)}},
	{"external not masqueraded", "kubeproxy.chain.damaged", []edit{del(`"chain": "external-CFIEJ2HK-prod/np/tcp/".*mark-for`)}},
	{"external flushed", "kubeproxy.chain.damaged", []edit{delAll(`"chain": "external-CFIEJ2HK-prod/np/tcp/"`)}},
	{"local: node not routed", "kubeproxy.chain.damaged", []edit{del(`"chain": "external-OBSQWQTE.*short-circuit local`)}},
	{"local: pods not routed", "kubeproxy.chain.damaged", []edit{del(`"chain": "external-OBSQWQTE.*short-circuit pod`)}},
	{"affinity rule missing", "kubeproxy.affinity.set", []edit{del(`"chain": "service-VTLL5JLX-prod/sticky/tcp/".*@affinity-CY263KL3`)}},
	{"affinity of another endpoint", "kubeproxy.affinity.set",
		[]edit{sub(`"chain": "service-VTLL5JLX-prod/sticky/tcp/".*@affinity-CY263KL3`,
			`@affinity-CY263KL3-prod/sticky/tcp/__100.96.3.1/80`, `@affinity-XBV3KTXM-prod/sticky/tcp/__100.96.3.2/80`)}},
	{"affinity timeouts differ", "kubeproxy.affinity.set", []edit{sub(`"name": "affinity-XBV3KTXM`, `10800`, `600`)}},
	{"clients not recorded", "kubeproxy.affinity.set", []edit{del(`"chain": "endpoint-CY263KL3.*update`)}},
	{"marked with another bit", "kubeproxy.chain.damaged",
		[]edit{sub(`"ip", "table": "kube-proxy", "chain": "mark-for-masquerade"`, `16384`, `32768`)}},
	{"nothing marked", "kubeproxy.chain.damaged", []edit{del(`"ip", "table": "kube-proxy", "chain": "mark-for-masquerade"`)}},
	{"everything masqueraded", "kubeproxy.chain.damaged",
		[]edit{del(`"ip", "table": "kube-proxy", "chain": "masquerading".*return`)}},
	{"mark not cleared", "kubeproxy.chain.damaged", []edit{del(`"ip", "table": "kube-proxy", "chain": "masquerading".*mangle`)}},
	{"ports not random", "kubeproxy.masquerade.random-fully",
		[]edit{sub(`"ip", "table": "kube-proxy", "chain": "masquerading".*fully-random`, `{"flags": "fully-random"}`, `null`)}},
	{"a rule of another program", "kubeproxy.chain.damaged",
		[]edit{before(`"chain": "service-CFIEJ2HK-prod/np/tcp/".*numgen`,
			`{"rule": {"family": "ip", "table": "kube-proxy", "chain": "service-CFIEJ2HK-prod/np/tcp/", "handle": 900, "expr": [{"return": `+
				`null}]}}`)}},
	{"a portal missing", "kubeproxy.chain.damaged",
		[]edit{sub(`{"map": {"family": "ip", "name": "service-ips"`,
			`[{"concat": ["10.104.21.207", "tcp", 80]}, {"goto": {"target": "service-QJDDRABM-prod/export/tcp/"}}], `, ``),
			sub(`{"set": {"family": "ip", "name": "cluster-ips"`, `"10.104.21.207", `, ``)}},
	{"another program's drop in services", "kubeproxy.chain.damaged", []edit{foreign("services", `"10.104.34.55"`, "drop")}},
	{"another program's drop in cluster-ips-check", "kubeproxy.chain.damaged",
		[]edit{foreign("cluster-ips-check", `"10.104.34.55"`, "drop")}},
	{"another program's return in masquerading", "kubeproxy.chain.damaged",
		[]edit{foreign("masquerading", `{"prefix": {"addr": "10.0.0.0", "len": 8}}`, "return")}},
	{"another program's accept in a base chain", "kubeproxy.chain.damaged",
		[]edit{foreign("filter-forward", `"10.104.34.55"`, "accept")}},
	{"a base chain that drops", "kubeproxy.jump.missing",
		[]edit{sub(`"ip", "table": "kube-proxy", "name": "filter-forward"`, `"policy": "accept"`, `"policy": "drop"`)}},
	{"unused ports not rejected", "kubeproxy.chain.damaged",
		[]edit{del(`"ip", "table": "kube-proxy", "chain": "cluster-ips-check".*@cluster-ips`)}},
	{"map flushed", "kubeproxy.chain.damaged",
		[]edit{{op: "cut", line: `{"map": {"family": "ip", "name": "service-ips"`, old: `, "elem": `}}},
}

// foreign puts a rule for one destination in front of the first rule of a chain.
func foreign(chain, destination, verdict string) edit {
	return after(`{"chain": {"family": "ip", "table": "kube-proxy", "name": "`+chain+`"`, `{"rule": {"family": "ip", "table": "kube-proxy", `+
		`"chain": "`+chain+`", "handle": 900, "expr": [{"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "daddr"}}, `+
		`"right": `+destination+`}}, {"`+verdict+`": null}]}}`)
}

func TestNFTBreakages(t *testing.T) {
	text := readFile(t, "nft-list-ruleset.json")
	for _, b := range nftBreakages {
		t.Run(b.name, func(t *testing.T) {
			wantOne(t, Judge(mustParse(t, editedNFT(t, text, b.edits...)), Options{}), b.want)
		})
	}
}

// TestNFT136 covers the form of 1.36, created with nft from kube-proxy's source: no
// mark-for-masquerade, no endpoint chains without affinity, hairpin traffic by a set.
func TestNFT136(t *testing.T) {
	text := readFile(t, "nft-1.36-form.json")
	for _, b := range []struct {
		name, want string
		edits      []edit
	}{
		{"healthy", "", nil},
		{"modulus", "kubeproxy.chain.damaged", []edit{sub(`"dnat".*numgen`, `"mod": 2`, `"mod": 3`)}},
		{"key twice", "kubeproxy.chain.damaged", []edit{sub(`"dnat".*numgen`, `[1, `, `[0, `)}},
		{"endpoint twice", "kubeproxy.chain.damaged", []edit{sub(`"dnat".*numgen`, `10.244.2.2`, `10.244.1.2`)}},
		{"other protocol", "kubeproxy.chain.damaged", []edit{sub(`"dnat".*numgen`, `"right": "tcp"`, `"right": "udp"`)}},
		{"hairpin of no endpoint", "kubeproxy.chain.damaged",
			[]edit{sub(`"name": "hairpin-connections"`, `"10.244.1.2", "10.244.1.2"`, `"10.244.1.3", "10.244.1.3"`)}},
		{"hairpin not looked up", "kubeproxy.chain.damaged", []edit{del(`"chain": "masquerading".*hairpin`)}},
		{"mark not cleared", "kubeproxy.chain.damaged", []edit{sub(`"chain": "masquerading".*mangle`,
			`{"mangle": {"key": {"meta": {"key": "mark"}}, "value": {"^": [{"meta": {"key": "mark"}}, 16384]}}}, `, ``)}},
		{"another bit", "kubeproxy.chain.damaged", []edit{sub(`"chain": "masquerading".*mangle`, `16384`, `32768`)}},
		{"external not masqueraded", "kubeproxy.chain.damaged", []edit{del(`"chain": "external-.*mangle`)}},
		{"source ranges not enforced", "kubeproxy.chain.damaged", []edit{del(`"chain": "firewall-[A-Z0-9]{8}-`)}},
		{"clients not recorded", "kubeproxy.affinity.set", []edit{del(`"chain": "endpoint-.*update.*10.244.1.4`)}},
		{"dnat to another address", "kubeproxy.chain.damaged",
			[]edit{sub(`"chain": "endpoint-.*dnat.*10.244.1.4`, `"addr": "10.244.1.4"`, `"addr": "10.244.1.5"`)}},
	} {
		t.Run(b.name, func(t *testing.T) {
			rep := Judge(mustParse(t, editedNFT(t, text, b.edits...)), Options{})
			wantOne(t, rep, b.want)
			if rep.Version.String() != "1.36 to 1.37" { // no Service has exactly one endpoint
				t.Errorf("version %s", rep.Version)
			}
		})
	}
}

// TestNFT137 covers the form of 1.37: the rule for a Service with one endpoint has no numgen. No
// earlier version writes it.
func TestNFT137(t *testing.T) {
	const web = `{"dnat": {"family": "ip", "addr": {"map": {"key": {"numgen": {"mode": "random", "mod": 2, "offset": 0}}, "data": {"set": ` +
		`[[0, {"concat": ["10.244.1.2", 8080]}], [1, {"concat": ["10.244.2.2", 8080]}]]}}}}}`
	one := func(rule string) edit { return sub(`"dnat".*numgen`, web, rule) }
	const to = `{"dnat": {"addr": "10.244.1.2", "port": 8080}}`
	const chosen = `{"dnat": {"family": "ip", "addr": {"map": {"key": {"numgen": {"mode": "random", "mod": 1, "offset": 0}}, "data": {"set": ` +
		`[[0, {"concat": ["10.244.1.2", 8080]}]]}}}}}`
	for _, b := range []struct {
		name, version, want string
		edits               []edit
	}{
		{"healthy", "1.37", "", []edit{one(to)}},
		{"1.36", "1.36", "", []edit{one(chosen)}},
		{"other protocol", "1.37", "kubeproxy.chain.damaged", []edit{one(to), sub(`"service-5O3K3WW6.*8080`, `"right": "tcp"`, `"right": "udp"`)}},
		{"two", "1.37", "kubeproxy.chain.damaged", []edit{one(to + `, ` + to), sub(`"service-5O3K3WW6.*8080`, to+", "+to,
			to+`]}}, {"rule": {"family": "ip", "table": "kube-proxy", "chain": "service-5O3K3WW6-prod/web/tcp/http", "handle": 253, "expr": [`+to)}},
		{"not of this node", "1.37", "kubeproxy.chain.damaged", []edit{one(`{"dnat": {"addr": "10.244.1.9", "port": 8080}}`)}},
	} {
		t.Run(b.name, func(t *testing.T) {
			rep := Judge(mustParse(t, editedNFT(t, readFile(t, "nft-1.36-form.json"), b.edits...)), Options{})
			wantOne(t, rep, b.want)
			if rep.Version.String() != b.version {
				t.Errorf("version %s", rep.Version)
			}
			for _, s := range rep.Services {
				if s.Name == "prod/web:http" && b.want == "" && (len(s.Endpoints) != 1 || s.Endpoints[0].Address != "10.244.1.2:8080" || s.Endpoints[0].Chance != 1) {
					t.Errorf("endpoints: %+v", s.Endpoints)
				}
			}
		})
	}
	old := editedNFT(t, readFile(t, "nft-list-ruleset.json"), after(`"chain": "service-CFIEJ2HK-prod/np/tcp/".*mark-for`,
		`{"rule": {"family": "ip", "table": "kube-proxy", "chain": "service-CFIEJ2HK-prod/np/tcp/", "handle": 253, "expr": [`+to+`]}}`))
	wantOne(t, Judge(mustParse(t, old), Options{}), "kubeproxy.chain.damaged")
}

// until33 moves the base chains to their positions in 1.30 to 1.33.
var until33 = []edit{
	subAll(`"filter-prerouting-pre-dnat"`, `filter-prerouting-pre-dnat`, `filter-prerouting`),
	subAll(`"chain": "filter-output-pre-dnat"`, `firewall-check`, `cluster-ips-check`),
	subAll(`"name": "filter-output-pre-dnat"`, `"prio": -110`, `"prio": -90`),
	subAll(`"filter-output-pre-dnat"`, `filter-output-pre-dnat`, `filter-output-post-dnat`),
	subAll(`"kube-proxy", "name": "filter-(input|forward|output)"`, `"prio": 0`, `"prio": -110`),
	subAll(`"chain": "filter-output".*cluster-ips-check`, `cluster-ips-check`, `firewall-check`),
}

func TestNFT131(t *testing.T) {
	rep := Judge(mustParse(t, editedNFT(t, readFile(t, "nft-list-ruleset.json"), until33...)), Options{})
	wantOne(t, rep, "")
	if rep.Version.String() != "1.30 to 1.33" {
		t.Errorf("version %s", rep.Version)
	}
	broken := append(slices.Clone(until33), delAll(`"ip", "table": "kube-proxy", "chain": "filter-output-post-dnat"`))
	wantOne(t, Judge(mustParse(t, editedNFT(t, readFile(t, "nft-list-ruleset.json"), broken...)), Options{}), "kubeproxy.jump.missing")
}

// TestNFTLeftovers checks objects of other versions: kube-proxy never deletes the objects in its
// table that only another version knows.
func TestNFTLeftovers(t *testing.T) {
	const table = `{"table": {"family": "ip", "name": "kube-proxy"`
	chain := func(name, more string) edit {
		return after(table, `{"chain": {"family": "ip", "table": "kube-proxy", "name": "`+name+`", "handle": 900`+more+`}}`)
	}
	hairpins := after(table, `{"set": {"family": "ip", "name": "hairpin-connections", "table": "kube-proxy", "type": ["ipv4_addr", `+
		`"ipv4_addr", "inet_proto", "inet_service"], "handle": 901, "elem": [{"concat": ["10.1.1.1", "10.1.1.1", "tcp", 80]}]}}`)
	mark := after(table, `{"rule": {"family": "ip", "table": "kube-proxy", "chain": "mark-for-masquerade", "handle": 902, "expr": `+
		`[{"mangle": {"key": {"meta": {"key": "mark"}}, "value": {"|": [{"meta": {"key": "mark"}}, 32768]}}}]}}`)
	for _, b := range []struct {
		what, file, version, want string
		edits                     []edit
	}{
		{"1.36, back to 1.35", "nft-list-ruleset.json", "1.33 to 1.35", "", []edit{hairpins}},
		{"1.36, back to 1.35, and then broken", "nft-list-ruleset.json", "1.33 to 1.35", "kubeproxy.chain.damaged",
			[]edit{hairpins, del(`"chain": "endpoint-672AFPA7.*mark-for`)}},
		{"1.35, and another mark with 1.36", "nft-1.36-form.json", "1.36 to 1.37", "", []edit{mark, chain("mark-for-masquerade", "")}},
		{"1.34, back to 1.33", "nft-list-ruleset.json", "1.30 to 1.33", "", append(slices.Clone(until33),
			chain("filter-prerouting-pre-dnat", `, "type": "filter", "hook": "prerouting", "prio": -110, "policy": "accept"`))},
		{"1.33, and then 1.34", "nft-list-ruleset.json", "1.33 to 1.35", "", []edit{
			chain("filter-prerouting", `, "type": "filter", "hook": "prerouting", "prio": -110, "policy": "accept"`)}},
	} {
		t.Run(b.what, func(t *testing.T) {
			rep := Judge(mustParse(t, editedNFT(t, readFile(t, b.file), b.edits...)), Options{})
			wantOne(t, rep, b.want)
			if rep.Version.String() != b.version {
				t.Errorf("version %s, want %s", rep.Version, b.version)
			}
		})
	}
}

// TestDetectorByInterface checks that kube-proxy may identify Pods by their bridge
// (detectLocalMode), until 1.34 by the bridge's index.
func TestDetectorByInterface(t *testing.T) {
	const pods = `{"payload": {"protocol": "ip", "field": "saddr"}}, "right": {"prefix": {"addr": "100.96.0.0", "len": 11}}`
	for _, key := range []string{"iif", "iifname"} {
		text := strings.ReplaceAll(readFile(t, "nft-list-ruleset.json"), pods, `{"meta": {"key": "`+key+`"}}, "right": "cni0"`)
		rep := Judge(mustParse(t, text), Options{})
		wantOne(t, rep, "")
		lost := editedNFT(t, text, sub(`"chain": "external-[A-Z0-9]*-prod/lb-local/tcp/".*"cni0"`, `"op": "=="`, `"op": "!="`))
		wantOne(t, Judge(mustParse(t, lost), Options{}), "kubeproxy.chain.damaged")
	}
}

// TestSharedAddress checks two Services with one external address: the Service with endpoints gets
// the connections, and the reject rule of the other Service is no fault.
func TestSharedAddress(t *testing.T) {
	rules, svcs, eps := recordedFields(t, "nft")
	shared := strings.Replace(rules, `["192.0.2.4", "tcp", 80]`, `["192.0.2.2", "tcp", 80]`, 1) // of vip-none, and of vip
	opts := Options{Services: services(t, inService(svcs, "vip-none", "192.0.2.4", "192.0.2.2")), Endpoints: endpoints(t, eps),
		NodeName: "node-nftables"}
	wantOne(t, Judge(mustParse(t, shared), opts), "")
	wantOne(t, Judge(mustParse(t, rules), opts), "kubeproxy.truth.service-address")
	own := strings.Replace(rules, `"192.0.2.4", "tcp", 80]}, "comment": "default/vip-none"`, `"192.0.2.2", "tcp", 80]}, "comment": "default/vip"`, 1)
	wantOne(t, Judge(mustParse(t, own), Options{}), "kubeproxy.chain.damaged")
}

// TestLongNames checks that Services without endpoints are not judged if their names are longer
// than an nftables comment, because kube-proxy truncates them.
func TestLongNames(t *testing.T) {
	name := strings.Repeat("s", 63)
	ns := strings.Repeat("n", 63)
	rules, svcs, eps := recordedFields(t, "nft")
	const port = `{"nodePort": 31293, `
	svcs = inService(svcs, "vip-none", `"namespace": "default"`, `"namespace": "`+ns+`"`)
	svcs = inService(svcs, "vip-none", port, port+`"name": "a-port-of-it", `)
	svcs = strings.Replace(svcs, `"vip-none"`, `"`+name+`"`, 1)
	opts := Options{Services: services(t, svcs), Endpoints: endpoints(t, eps), NodeName: "node-nftables"}
	cut := strings.ReplaceAll(rules, "default/vip-none", (ns + "/" + name + ":a-port-of-it")[:128])
	wantOne(t, Judge(mustParse(t, cut), opts), "")
	stray := strings.Replace(cut, `"elem": ["10.96.0.1"`, `"elem": ["10.96.0.2", "10.96.0.1"`, 1)
	wantOne(t, Judge(mustParse(t, stray), opts), "kubeproxy.chain.damaged")
}
