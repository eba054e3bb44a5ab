package proxy

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/audit/path"
	"nodegate/internal/ruleset"
	"nodegate/internal/verdict"
)

// nftJSON is a table of nftables with one base chain, as `nft -j list ruleset` prints it. Each rule is a list of statements.
func nftJSON(family, name, chain string, rules ...string) string {
	text := fmt.Sprintf(`{"nftables": [{"table": {"family": %q, "name": %q}}, {"chain": {"family": %q, "table": %q, "name": "c", "handle": 1, %s}}`,
		family, name, family, name, chain)
	for i, r := range rules {
		text += fmt.Sprintf(`, {"rule": {"family": %q, "table": %q, "chain": "c", "handle": %d, "expr": [%s]}}`, family, name, 2+i, r)
	}
	return text + "]}"
}

// withTable returns the rules of a node with flannel and Docker, and a table of nftables.
func withTable(t *testing.T, table string) []*ruleset.Set {
	t.Helper()
	sets := mustParse(t, readFile(t, "flannel-docker.txt"))
	return append(sets, mustParse(t, table)...)
}

func forwardPolicy(policy string) string {
	return `"type": "filter", "hook": "forward", "prio": 0, "policy": "` + policy + `"`
}

func ingress(device, policy string) string {
	return `"type": "filter", "hook": "ingress", "dev": ` + device + `, "prio": 0, "policy": "` + policy + `"`
}

// TestLinkChains: a chain at a hook of links or bridges that drops all packets of Pods is a finding. One that may drop
// some is a note, and makes the way of a packet unknown.
func TestLinkChains(t *testing.T) {
	const (
		saddr = `{"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "saddr"}}, "right": "192.0.2.1"}}`
		note  = " may drop packets"
	)
	for _, c := range []struct {
		what, table, finding, note string
	}{
		{"bridge, policy", nftJSON("bridge", "filter", forwardPolicy("drop")),
			"packets that pass bridges: chain c of table bridge filter, line 1 loses them (policy DROP)", "c of table bridge filter, at hook forward of bridges,"},
		{"bridge, a rule that drops all", nftJSON("bridge", "filter", forwardPolicy("accept"), `{"drop": null}`),
			"packets that pass bridges: chain c of table bridge filter, handle 2 loses them (drop)", "at hook forward of bridges,"},
		{"bridge, some", nftJSON("bridge", "filter", forwardPolicy("accept"), saddr+`, {"drop": null}`), "", "(ip saddr 192.0.2.1 drop)"},
		{"bridge, all but some", nftJSON("bridge", "filter", forwardPolicy("drop"), saddr+`, {"accept": null}`), "", "(policy DROP)"},
		{"bridge, another program's target", nftJSON("bridge", "filter", forwardPolicy("accept"), `{"xt": null}`), "", "(xt)"},
		{"bridge, accepts", nftJSON("bridge", "filter", forwardPolicy("accept"), saddr+`, {"accept": null}`), "", ""},
		{"bridge, accepts before a policy", nftJSON("bridge", "filter", forwardPolicy("drop"), `{"accept": null}`), "", ""},
		{"uplink", nftJSON("inet", "x", ingress(`"eth0"`, "drop")),
			"packets that come in by eth0: chain c of table inet x, line 1 loses them (policy DROP)", "at hook ingress of eth0,"},
		{"uplink, egress", nftJSON("netdev", "x", strings.Replace(ingress(`"eth0"`, "drop"), "ingress", "egress", 1)),
			"packets that leave by eth0: chain c of table netdev x, line 1 loses them (policy DROP)", "at hook egress of eth0,"},
		{"the Pods' bridge", nftJSON("netdev", "x", ingress(`["eth7", "cni0"]`, "drop")),
			"packets that come in by cni0: chain c of table netdev x, line 1 loses them (policy DROP)", "at hook ingress of eth7, cni0,"},
		{"another card", nftJSON("netdev", "x", ingress(`"eth7"`, "drop")), "", "at hook ingress of eth7,"},
		{"one Pod", nftJSON("netdev", "x", ingress(`"veth1"`, "drop")), "", "at hook ingress of veth1,"},
		{"a redirection", nftJSON("netdev", "x", ingress(`"eth0"`, "accept"), `{"fwd": {"dev": "eth1"}}`), "", "(fwd)"},
		{"Docker", nftJSON("netdev", "x", ingress(`"docker0"`, "drop")), "", ""},
		{"nothing", nftJSON("netdev", "x", ingress(`"eth0"`, "accept"), `{"counter": {"packets": 0, "bytes": 0}}`), "", ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			sets := withTable(t, c.table)
			opts := Options{Uplink: "eth0", Links: []string{"eth0", "cni0"}, Own: func(netip.Addr) path.Answer { return path.No }}
			rep := Judge(sets, opts)
			got := ""
			for _, f := range rep.Findings {
				got += f.Name + " " + f.Message
			}
			want := ""
			if c.finding != "" {
				want = "kubeproxy.way.link " + c.finding
			}
			assert.Equal(t, got, want, "findings")
			notes := strings.Join(rep.Notes, "\n")
			if noted := c.note != "" && c.finding == ""; noted != strings.Contains(notes, note) || noted && !strings.Contains(notes, c.note) {
				t.Errorf("notes: %s", notes)
			}
			if _, found := Reach(sets, opts); len(found) != len(rep.Findings) {
				t.Errorf("the check finds %+v", found)
			}
			list, err := Traces(&rep, sets, &opts, "default/service1", FromPod)
			if err != nil || len(list) != 1 {
				t.Fatal(list, err)
			}
			if named := strings.Join(list[0].NotFollowed, "\n"); (named != "") != (c.note != "") || !strings.Contains(named, c.note) ||
				(list[0].Verdict == verdict.Pass) != (c.note == "") {
				t.Errorf("%s: not followed: %s", list[0].Verdict, named)
			}
		})
	}
	unread := append(withTable(t, nftJSON("inet", "x", ingress(`"eth0"`, "accept"))), &ruleset.Set{Unread: errors.New("not read")})
	judged := Judge(unread, Options{})
	list, err := Traces(&judged, unread, &Options{}, "default/service1", FromPod)
	if err != nil || len(list) != 1 || list[0].Verdict == verdict.Pass || len(list[0].NotFollowed) != 1 {
		t.Errorf("the tables of other programs are not read: %+v, %v", list, err)
	}
	rep := Judge(withTable(t, nftJSON("inet", "x", ingress(`"eth0"`, "drop"))), Options{})
	if len(rep.Findings) > 0 || len(rep.Notes) != 1 {
		t.Errorf("without the node's links: %+v, %q", rep.Findings, rep.Notes)
	}
}

// TestNativeChains: a chain of nft in a table of iptables-nft is followed in the output of nft too.
func TestNativeChains(t *testing.T) {
	table := `{"nftables": [{"table": {"family": "ip", "name": "filter"}},
		{"chain": {"family": "ip", "table": "filter", "name": "FORWARD", ` + forwardPolicy("accept") + `}},
		{"chain": {"family": "ip", "table": "filter", "name": "mine", "type": "filter", "hook": "forward", "prio": -5, "policy": "POLICY"}},
		{"chain": {"family": "ip", "table": "filter", "name": "sub"}},
		{"chain": {"family": "ip", "table": "filter", "name": "other"}},
		{"rule": {"family": "ip", "table": "filter", "chain": "FORWARD", "handle": 5, "expr": [{"drop": null}]}},
		{"rule": {"family": "ip", "table": "filter", "chain": "mine", "handle": 6, "expr": [{"jump": {"target": "sub"}}]}},
		{"rule": {"family": "ip", "table": "filter", "chain": "sub", "handle": 7, "expr": [RULE]}},
		{"rule": {"family": "ip", "table": "filter", "chain": "other", "handle": 8, "expr": [{"drop": null}]}}]}`
	for _, c := range []struct{ what, policy, rule, want string }{
		{"policy", "drop", `{"counter": {}}`, "chain mine of table ip filter, line 2 loses them (policy DROP)"},
		{"a rule behind a jump", "accept", `{"drop": null}`, "chain sub of table ip filter, handle 7 loses them (drop)"},
		{"neither", "accept", `{"accept": null}`, ""},
	} {
		sets := withTable(t, strings.NewReplacer("POLICY", c.policy, "RULE", c.rule).Replace(table))
		if c.want == "" && len(sets[1].Foreign[0].Chains) != 2 {
			t.Errorf("chains: %+v", sets[1].Foreign[0].Chains)
		}
		got := ""
		for _, f := range Judge(sets, Options{}).Findings {
			got += f.Message
		}
		if want := "packets from Pods to other machines: " + c.want; c.want != "" && got != want || c.want == "" && got != "" {
			t.Errorf("%s: got %q, want %q", c.what, got, want)
		}
	}
	only := strings.ReplaceAll(table, `, "type": "filter", "hook": "forward", "prio": -5, "policy": "POLICY"`, "")
	if sets := withTable(t, strings.ReplaceAll(only, "RULE", `{"drop": null}`)); len(sets[1].Foreign) != 0 {
		t.Errorf("a table of iptables alone: %+v", sets[1].Foreign)
	}
}
