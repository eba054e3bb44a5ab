package proxy

import (
	"net/netip"
	"strings"
	"testing"

	"nodegate/internal/audit/path"
	"nodegate/internal/ruleset"
)

// TestReachFlows loses replies, marked packets, packets of the node and of other nodes' Pods, each by one rule, and checks that
// conditions which nothing decides are never silent.
func TestReachFlows(t *testing.T) {
	local := path.Route{To: netip.MustParsePrefix("10.244.0.0/24"), Link: "cni0"}
	other := path.Route{To: netip.MustParsePrefix("10.244.1.0/24"), Link: "eth0"}
	forward := func(rule string) edit { return before(beforeForward, "-A FORWARD "+rule) }
	for _, c := range []struct {
		what string
		edit edit
		want string // the name of the finding, or "note"
	}{
		{"nothing", forward("-s 198.18.0.1/32 -j DROP"), ""},
		{"replies of a port", forward("-p udp -m udp --sport 53 -j DROP"), "kubeproxy.way.forward"},
		{"replies of one Pod", forward("-s 10.244.0.4/32 -p udp -m udp --sport 53 -j DROP"), ""},
		{"the node to its Pods", before("^-A OUTPUT .*load balancer firewall", "-A OUTPUT -o cni0 -j DROP"), "kubeproxy.way.forward"},
		{"Pods of other nodes", rawTable("-A PREROUTING -s 10.0.0.0/8 -i eth0 -j DROP"), "kubeproxy.way.forward"},
		{"packets that fill the MTU", forward("-m length --length 1000:65535 -j DROP"), "kubeproxy.way.forward"},
		{"a range of all Pods", forward("-m iprange --src-range 10.244.0.2-10.244.0.254 -j DROP"), "kubeproxy.way.forward"},
		{"a range of some Pods", forward("-m iprange --src-range 10.244.0.2-10.244.0.9 -j DROP"), ""},
		{"the whole day", forward("-i cni0 -m time --timestart 00:00:00 --timestop 23:59:59 --datestop 2038-01-19T03:14:07 -j DROP"), "kubeproxy.way.forward"},
		{"a day that has passed", forward("-i cni0 -m time --datestop 2001-01-02T00:00:00 -j DROP"), ""},
		{"the night", forward("-i cni0 -m time --timestart 01:00:00 --timestop 02:00:00 -j DROP"), "kubeproxy.way.undecided"},
		{"any connection", forward("-i cni0 -m connlimit --connlimit-above 0 --connlimit-mask 0 --connlimit-saddr -j DROP"), "kubeproxy.way.forward"},
		{"many connections", forward("-i cni0 -m connlimit --connlimit-above 900 --connlimit-mask 0 --connlimit-saddr -j DROP"), "note"},
		{"byte code", forward("-i cni0 -m bpf --bytecode \"1,6 0 0 65535\" -j DROP"), "kubeproxy.way.undecided"},
		{"a quota", before(beforeForward, "-A FORWARD -i cni0 -m quota --quota 10 -j ACCEPT\n-A FORWARD -i cni0 -j DROP"), "kubeproxy.way.undecided"},
		{"a low rate", before(beforeForward, "-A FORWARD -i cni0 -m limit --limit 1/min -j ACCEPT\n-A FORWARD -i cni0 -j DROP"), "kubeproxy.way.undecided"},
		{"a high rate", before(beforeForward, "-A FORWARD -i cni0 -m limit --limit 100/sec -j ACCEPT\n-A FORWARD -i cni0 -j DROP"), "note"},
		{"a queue", forward("-j NFQUEUE --queue-num 7"), "kubeproxy.way.forward"},
		{"a queue with a bypass", forward("-j NFQUEUE --queue-num 7 --queue-bypass"), ""},
		{"a queue with a listener", forward("-j NFQUEUE --queue-num 8"), ""},
		{"a set with all Pods", forward("-m set --match-set pods src -j DROP"), "kubeproxy.way.forward"},
		{"a set with others", forward("-m set --match-set others src -j DROP"), ""},
		{"a set that was not read", forward("-m set --match-set x src -j DROP"), "kubeproxy.way.undecided"},
		{"a list with a set of all Pods", forward("-m set --match-set list src -j DROP"), "kubeproxy.way.forward"},
		{"a list with a set of others", forward("-m set --match-set strangers src -j DROP"), ""},
		{"a list with a set that was not read", forward("-m set --match-set unread src -j DROP"), "kubeproxy.way.undecided"},
		{"addresses of Pods at some links", forward("-m set --match-set links src,src -j DROP"), "kubeproxy.way.undecided"},
		{"addresses of others at some links", forward("-m set --match-set elsewhere src,src -j DROP"), ""},
		{"all but addresses of others at some links", forward("-m set ! --match-set elsewhere src,src -j DROP"), "kubeproxy.way.undecided"},
		{"a TTL below that of forwarded packets", forward("-m ttl --ttl-lt 63 -j DROP"), ""},
		{"the TTL of forwarded packets of Pods", forward("-i cni0 -m ttl --ttl-lt 64 -j DROP"), "kubeproxy.way.forward"},
		{"replies by their direction", forward("-m conntrack --ctdir REPLY -j DROP"), "kubeproxy.way.forward"},
		{"a source of no machine, to other nodes' Pods", before("^-A POSTROUTING .*kubernetes postrouting", "-A POSTROUTING -o eth0 -d 10.244.1.0/24 -j SNAT --to-source 10.99.0.1"),
			"kubeproxy.way.source"},
		{"a source of no machine, to Pods of this node", before("^-A POSTROUTING .*kubernetes postrouting", "-A POSTROUTING -o cni0 -j SNAT --to-source 10.99.0.1"), ""},
		{"a zone for packets from Pods alone", rawTable("-A PREROUTING -i cni0 -j CT --zone 5"), "kubeproxy.way.forward"},
		{"a zone for all packets", rawTable("-A PREROUTING -j CT --zone 5\n-A OUTPUT -j CT --zone 5"), ""},
		{"a zone for another link", rawTable("-A PREROUTING -i docker0 -j CT --zone 5"), ""},
		{"a zone for one Pod", rawTable("-A PREROUTING -s 10.244.0.77/32 -j CT --zone 5"), ""},
		{"the upper half of all addresses", forward("-s 128.0.0.0/1 -j DROP"), "kubeproxy.way.forward"},
		{"packets to the upper half", forward("-d 128.0.0.0/1 -j DROP"), "kubeproxy.way.forward"},
		{"the upper half, of new connections", forward("-s 128.0.0.0/1 -m conntrack --ctstate NEW -j DROP"), ""},
		{"the upper half at another link", forward("-i docker0 -s 128.0.0.0/1 -j DROP"), ""},
		{"multicast", forward("-s 224.0.0.0/3 -j DROP"), ""},
		{"all but a network, and a half at another link", forward("! -s 10.0.0.0/8 -i eth0 -m conntrack --ctstate ESTABLISHED -j DROP\n" +
			"-A FORWARD -i docker0 -d 128.0.0.0/1 -j DROP"), ""},
		{"TPROXY", mangleTable("-A PREROUTING -p udp -m udp --dport 53 -j TPROXY --on-port 15001 --tproxy-mark 0x1/0x1\n"), "kubeproxy.way.undecided"},
	} {
		t.Run(c.what, func(t *testing.T) {
			sets := mustParse(t, declareChains(editedSave(t, readFile(t, "flannel-docker.txt"), c.edit)))
			span := func(text string) []ruleset.Span { list, _ := ruleset.Spans([]string{text}); return list }
			sets = append(sets, &ruleset.Set{Source: "ipset", IPSets: map[string]*ruleset.IPSet{
				"pods": {Spans: span("10.244.0.0/16")}, "others": {Spans: span("198.18.0.0/15")},
				"links": {Spans: span("10.244.0.0/16"), Partial: true}, "elsewhere": {Spans: span("198.18.0.0/15"), Partial: true},
				"list": {Members: []string{"others", "pods"}}, "strangers": {Members: []string{"others", "elsewhere"}},
				"unread": {Members: []string{"others", "x"}}}})
			rep := Judge(sets, Options{Uplink: "eth0", Links: []string{"eth0", "cni0"}, Routes: []path.Route{local, other}, PodRoutes: []path.Route{local},
				Own: func(a netip.Addr) path.Answer { return path.No }, Listens: func(queue uint16) path.Answer {
					return map[bool]path.Answer{true: path.Yes, false: path.No}[queue == 8]
				}})
			got := ""
			for _, n := range rep.Notes {
				if strings.Contains(n, "depends on") {
					got = "note"
				}
			}
			for _, f := range rep.Findings {
				if got = f.Name; c.what == "a set with all Pods" && !strings.Contains(f.Remedy, "`ipset del pods ELEMENT`") {
					t.Errorf("the remedy removes more than the element: %s", f.Remedy)
				}
			}
			if got != c.want {
				t.Errorf("got %q, want %q: %+v, notes %q", got, c.want, rep.Findings, rep.Notes)
			}
		})
	}
}
