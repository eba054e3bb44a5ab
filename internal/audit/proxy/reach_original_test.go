package proxy

import (
	"strings"
	"testing"

	"nodegate/internal/assert"
)

// TestReachDecided: conditions that hold for all packets of Services, or for every first reply, are decided.
func TestReachDecided(t *testing.T) {
	const (
		original = "packets from Pods to endpoints of Services: chain FORWARD of table filter, line 35 loses them (DROP)"
		replies  = "replies of other machines to Pods with TCP: chain FORWARD of table filter, line 35 loses them (DROP)"
		nft      = `{"nftables": [{"table": {"family": "ip", "name": "fw"}}, {"chain": {"family": "ip", "table": "fw", "name": "c", "handle": 1,
			"type": "filter", "hook": "forward", "prio": 0, "policy": "accept"}},
			{"rule": {"family": "ip", "table": "fw", "chain": "c", "handle": 2, "expr": [MATCH, {"drop": null}]}}]}`
		nftOriginal = `{"match": {"op": "==", "left": {"ct": {"key": "ip daddr", "dir": "original"}}, "right": {"prefix": {"addr": "ADDRESS", "len": 12}}}}`
		nftFlags    = `{"match": {"op": "==", "left": {"&": [{"payload": {"protocol": "tcp", "field": "flags"}}, ["MASK", "ack"]]}, "right": ["syn", "ack"]}}`
	)
	for _, c := range []struct{ rule, want string }{
		{"-m conntrack --ctorigdst 10.96.0.0/12 -j DROP", original},
		{"-m conntrack ! --ctorigdst 172.20.0.0/16 -m conntrack --ctstate DNAT -j DROP", original},
		{"-m conntrack --ctorigdst 10.97.0.0/16 -j DROP", ""},
		{"-m conntrack --ctorigdst 10.96.0.10/32 -j DROP",
			"packets from Pods to Services (such as kube-system/kube-dns:dns): chain FORWARD of table filter, line 35 loses them (DROP)"},
		{"-m conntrack ! --ctorigdst 10.96.0.0/12 -m conntrack --ctstate DNAT -j DROP", ""},
		{"-m conntrack --ctorigdst 10.244.0.0/16 -m conntrack --ctstate ESTABLISHED -j DROP", ""},
		{"-p tcp -m tcp --tcp-flags SYN,ACK SYN,ACK -j DROP", replies},
		{"-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN,ACK -j DROP", replies},
		{"-p tcp -m tcp --tcp-flags FIN,SYN FIN,SYN -j DROP", ""},
		{"-p tcp -m tcp --tcp-flags SYN,ACK SYN,ACK -m conntrack --ctstate NEW -j DROP", ""},
		{strings.Replace(strings.Replace(nft, "MATCH", nftOriginal, 1), "ADDRESS", "10.96.0.0", 1),
			"packets from Pods to endpoints of Services: chain c of table ip fw, handle 2 loses them (drop)"},
		{strings.Replace(strings.Replace(nft, "MATCH", nftOriginal, 1), "ADDRESS", "172.16.0.0", 1), ""},
		{strings.Replace(strings.Replace(nft, "MATCH", nftFlags, 1), "MASK", "syn", 1),
			"replies of other machines to Pods with TCP: chain c of table ip fw, handle 2 loses them (drop)"},
		{strings.Replace(strings.Replace(nft, "MATCH", nftFlags, 1), "MASK", "fin", 1), ""},
	} {
		sets := mustParse(t, readFile(t, "flannel-docker.txt"))
		if strings.HasPrefix(c.rule, "-") {
			sets = mustParse(t, editedSave(t, readFile(t, "flannel-docker.txt"), before(beforeForward, "-A FORWARD "+c.rule)))
		} else {
			sets = append(sets, mustParse(t, c.rule)...)
		}
		got := ""
		for _, f := range Judge(sets, Options{}).Findings {
			got += f.Message
		}
		assert.Equal(t, got, c.want, "%s", c.rule)
		if _, found := Reach(sets, Options{}); (len(found) > 0) != (c.want != "") {
			t.Errorf("%s: the check finds %+v", c.rule, found)
		}
	}
}

// TestServiceRange: addresses that no range of the family contains end the search.
func TestServiceRange(t *testing.T) {
	service := func(ip string) Service { return Service{Family: "ip6", ClusterIP: ip, Endpoints: []Endpoint{{}}} }
	r := &reach{family: "ip6", rep: &Judgment{Services: []Service{service("fd00::1"), service("10.96.0.1"), service("fd00::ff")}}}
	assert.Equal(t, r.serviceRange().String(), "fd00::/120")
	r.rep.Services = append(r.rep.Services, service("fe80::1%eth0"))
	assert.Equal(t, r.serviceRange().String(), "::/0", "with a zone")
}
