package proxy

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"nodegate/internal/require"
	"nodegate/internal/verdict"
)

// damage is one mutation of healthy rules.
type damage struct {
	what, rules string
	service     string // the Service that the audit must name; "" if the fault concerns all Services; "any" if several share it
}

// serviceOf returns the Service port that a rule or element names.
func serviceOf(text string) string {
	m := regexp.MustCompile(`default/([a-z-]+)(?:/(?:tcp|sctp)/([a-z]*)|:([a-z]+))?`).FindStringSubmatch(text)
	if m == nil {
		return ""
	}
	return formatServicePort("default", m[1], m[2]+m[3])
}

// harmless matches the rules and elements whose loss or change the rules and the API cannot show: comments and counters,
// the node's own addresses, and the configuration of kube-proxy.
var harmless = regexp.MustCompile(`will be dropped by KUBE-PROXY-FIREWALL` + // a comment without a target
	`|--nfacct-name  localhost_nps_accepted_pkts` + // a counter: the next rule has the same target
	`|KUBE-FW-[A-Z0-9]+ -s (192.0.2.9|fd00::c000:209)/` + // written because the node's own address is in the range
	`|of nodeport-ips` + // the node's addresses
	`|Drop traffic to unallocated ClusterIPs` + // the ranges that kube-proxy has read from the API
	`|KUBE-FIREWALL ! -s 127.0.0.0/8`) // kubelet's rule: a warning

// damagedLines returns mutations of the rules of iptables mode: each rule lost, and each of its parts wrong.
func damagedLines(rules string) []damage {
	lines := strings.Split(strings.TrimSpace(rules), "\n")
	owner := map[string]string{} // of a Service's own chain
	for _, l := range lines {
		if words := strings.Fields(l); words[0] == "-A" && strings.Count(words[1], "-") == 2 && serviceOf(l) != "" {
			owner[words[1]] = serviceOf(l)
		}
	}
	wrong := map[string]string{"--probability": "0.12345000000", "-d": "10.96.9.9/32", "--dport": "9999", "-p": "udp",
		"--to-destination": "10.9.9.9:99", "--set-xmark": "0x8000/0x8000", "--mark": "0x8000/0x8000"}
	var all []damage
	for i, l := range lines {
		words := strings.Split(l, " ")
		if words[0] != "-A" {
			continue
		}
		put := func(what string, with ...string) {
			service := serviceOf(l)
			if service == "" {
				service = owner[words[1]]
			}
			all = append(all, damage{what + ": " + l, strings.Join(slices.Concat(lines[:i], with, lines[i+1:]), "\n") + "\n", service})
		}
		put("lost")
		for k, word := range words {
			if value := wrong[word]; value != "" && words[k+1] != value {
				changed := slices.Clone(words)
				changed[k+1] = value
				put("wrong "+word, strings.Join(changed, " "))
			}
		}
	}
	return all
}

// damagedObjects returns mutations of table kube-proxy: each rule lost, each element of a set or map lost or with another
// key.
func damagedObjects(t *testing.T, rules string) []damage {
	t.Helper()
	var doc struct{ Nftables []json.RawMessage }
	require.NoError(t, json.Unmarshal([]byte(rules), &doc))
	var all []damage
	put := func(what, service string, i int, with ...json.RawMessage) {
		var list []string
		for _, o := range slices.Concat(doc.Nftables[:i], with, doc.Nftables[i+1:]) {
			list = append(list, string(o))
		}
		all = append(all, damage{what, `{"nftables": [` + strings.Join(list, ",") + "]}", service})
	}
	for i, o := range doc.Nftables {
		var kinds map[string]map[string]any
		require.NoError(t, json.Unmarshal(o, &kinds))
		if kinds["rule"] != nil {
			put("lost: "+string(o), serviceOf(string(o)), i)
		}
		for _, kind := range []string{"set", "map"} {
			elements, _ := kinds[kind]["elem"].([]any)
			for k, e := range elements {
				text, err := json.Marshal(e)
				require.NoError(t, err)
				service := serviceOf(string(text))
				if service == "" {
					service = "any"
				}
				write := func(what string, with ...any) {
					kinds[kind]["elem"] = slices.Concat(elements[:k], with, elements[k+1:])
					changed, err := json.Marshal(kinds)
					require.NoError(t, err)
					put(fmt.Sprintf("%s: %s of %s", what, text, kinds[kind]["name"]), service, i, changed)
				}
				write("lost")
				if changed := strings.NewReplacer(`"tcp"`, `"udp"`, `"sctp"`, `"udp"`).Replace(string(text)); changed != string(text) {
					write("another protocol", json.RawMessage(changed))
				}
				if changed := regexp.MustCompile(`"(s?c?tc?p)",\d+`).ReplaceAllString(string(text), `"$1",1`); changed != string(text) {
					write("another port", json.RawMessage(changed))
				}
			}
		}
	}
	return all
}

// TestEveryDamageIsNamed damages the recorded rules of a healthy kube-proxy in one place. The audit must fail, and name
// the Service.
func TestEveryDamageIsNamed(t *testing.T) {
	for _, as := range []struct {
		mode       string
		ipv6, sctp bool
	}{{"iptables", false, false}, {"nft", false, false}, {"iptables", true, false}, {"nft", true, false}, {"iptables", false, true},
		{"nft", false, true}} {
		mode := as.mode
		t.Run(fmt.Sprintf("%s, IPv6 %v, SCTP %v", mode, as.ipv6, as.sctp), func(t *testing.T) {
			rules, svcs, eps := recordedAs(t, mode, as.ipv6, as.sctp)
			opts := Options{Services: services(t, svcs), Endpoints: endpoints(t, eps), BeLiberal: new(bool),
				NodePortAddresses: new(false),
				NodeName:          map[string]string{"iptables": "node-iptables-legacy", "nft": "node-nftables"}[mode]}
			wantOne(t, Judge(mustParse(t, rules), opts), "")
			list := damagedLines(rules)
			if mode == "nft" {
				list = damagedObjects(t, rules)
			}
			tried := 0
			for _, d := range list {
				if harmless.MatchString(d.what) {
					continue
				}
				tried++
				rep := Judge(mustParse(t, d.rules), opts)
				if !slices.ContainsFunc(rep.Findings, func(f Finding) bool {
					return f.Verdict == verdict.Fail && (f.Service == d.service || d.service == "any" && f.Service != "")
				}) {
					t.Errorf("%s: no failure of %q: %+v", d.what, d.service, rep.Findings)
				}
			}
			t.Logf("%d damages", tried)
		})
	}
}

// TestCommentsAreWords changes and removes each comment of a healthy kube-proxy's rules. A rule that serves a Service serves
// it, whatever its comment. Only rules that reject packets, or accept health checks, have the Service nowhere else.
func TestCommentsAreWords(t *testing.T) {
	rules, svcs, eps := recordedAs(t, "iptables", false, false)
	opts := Options{Services: services(t, svcs), Endpoints: endpoints(t, eps), BeLiberal: new(bool), NodeName: "node-iptables-legacy",
		NodePortAddresses: new(false)}
	only := regexp.MustCompile(`^-A .*(has no (local )?endpoints|health check node port)`)
	comment := regexp.MustCompile(` -m comment --comment ("[^"]*"|\S+)`)
	lines, tried := strings.SplitAfter(rules, "\n"), 0
	for i, l := range lines {
		if !comment.MatchString(l) || only.MatchString(l) {
			continue
		}
		for _, with := range []string{"", ` -m comment --comment "changed"`, ` -m comment --comment "default/other cluster IP"`} {
			tried++
			changed := slices.Concat(lines[:i], []string{comment.ReplaceAllString(l, with)}, lines[i+1:])
			if rep := Judge(mustParse(t, strings.Join(changed, "")), opts); len(rep.Findings) > 0 {
				t.Errorf("%q instead of the comment of %s%s: %s", with, l, rep.Findings[0].Name, rep.Findings[0].Message)
			}
		}
	}
	if tried < 50 {
		t.Errorf("only %d comments", tried)
	}
}
