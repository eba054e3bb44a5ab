package proxy

import (
	"net/netip"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/audit/path"
	"nodegate/internal/verdict"
)

// TestAddOnce: a rule that meets packets of both families is one cause, and so are the losses by routing rules. Other rules are causes
// of their own.
func TestAddOnce(t *testing.T) {
	r := &reach{out: NewCollector(), found: map[string]*taken{}}
	add := func(family, table string, handle int, v verdict.Verdict) {
		r.addOnce(Finding{Name: "kubeproxy.way.forward", Family: family, Table: table, Chain: "c", Handle: handle, Verdict: v, Message: "m"})
	}
	for _, c := range []struct {
		family, table string
		handle, want  int
	}{
		{"ip", "inet fw", 2, 1}, {"ip6", "inet fw", 2, 1}, {"ip6", "inet fw", 3, 2}, {"ip", "inet fw", 4, 3}, {"ip", "filter", 0, 4}, {"ip6", "filter", 0, 5},
		{"ip", "arp fw", 5, 6}, {"ip6", "arp fw", 5, 6},
	} {
		add(c.family, c.table, c.handle, map[bool]verdict.Verdict{true: verdict.Warn, false: verdict.Fail}[c.family == "ip"])
		assert.Equal(t, len(r.out.List), c.want, "%+v", c)
	}
	assert.Equal(t, r.out.List[0].Verdict, verdict.Fail)
	assert.Equal(t, r.out.List[0].Message, "m"+bothFamilies)
	assert.Equal(t, r.out.List[5].Message, "m")
	for _, to := range []string{"10.244.0.4", "10.244.1.4"} {
		r.add(path.Step{Hook: path.Routing, Rule: "ip route get " + to}, path.Way{}, "from Pods")
	}
	assert.Equal(t, strings.Join(r.order, " "), path.Routing)
}

// TestReachNotes: a lost jump of the CNI plugin, and a Pod that a rule bans, are noted, and no finding.
func TestReachNotes(t *testing.T) {
	local := path.Route{To: netip.MustParsePrefix("10.244.0.0/24"), Link: "cni0"}
	ban := `{"nftables": [{"table": {"family": "ip", "name": "ban"}}, {"set": {"family": "ip", "table": "ban", "name": "bl", "type": "ipv4_addr", "elem": ["ADDRESS"]}},
		{"chain": {"family": "ip", "table": "ban", "name": "c", "handle": 1, "type": "filter", "hook": "prerouting", "prio": -150, "policy": "accept"}},
		{"rule": {"family": "ip", "table": "ban", "chain": "c", "handle": 7, "expr": [
		{"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "saddr"}}, "right": "@bl"}}, {"drop": null}]}}]}`
	const banned = "packets of 10.244.0.9, an address of Pods of this node, to other machines: chain c of table ip ban, handle 7 loses them (drop)"
	for _, c := range []struct {
		what, nft string
		edit      edit
		want      string
	}{
		{"nothing", "", before(beforeForward, "-A FORWARD -s 198.18.0.1/32 -j DROP"), ""},
		{"a Pod in a set", strings.Replace(ban, "ADDRESS", "10.244.0.9", 1), edit{}, banned},
		{"another machine in a set", strings.Replace(ban, "ADDRESS", "198.18.0.9", 1), edit{}, ""},
		{"one endpoint", "", before(beforeForward, "-A FORWARD -d 10.244.0.4/32 -p udp -m udp --dport 53 -j DROP"),
			"packets from Pods to kube-system/kube-dns:dns: chain FORWARD of table filter, line"},
		{"a lost jump", "", del("^-A POSTROUTING .*-j FLANNEL-POSTRTG"), "chain FLANNEL-POSTRTG of table nat masquerades packets, but no rule leads to it"},
	} {
		text := readFile(t, "flannel-docker.txt")
		if c.edit.op != "" {
			text = editedSave(t, text, c.edit)
		}
		sets := mustParse(t, text)
		if c.nft != "" {
			sets = append(sets, mustParse(t, c.nft)...)
		}
		rep := Judge(sets, Options{Uplink: "eth0", Links: []string{"eth0", "cni0"}, Routes: []path.Route{local}, PodRoutes: []path.Route{local},
			Own: func(netip.Addr) path.Answer { return path.No }})
		got := strings.Join(rep.Notes, "\n")
		if len(rep.Findings) > 0 || c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: notes %q, want %q: %+v", c.what, got, c.want, rep.Findings)
		}
	}
}
