package proxy

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/audit/path"
	"nodegate/internal/verdict"
)

const (
	beforePrerouting = "^-A PREROUTING .*-j KUBE-SERVICES"
	beforeOutput     = "^-A OUTPUT -m comment --comment .kubernetes service portals"
	beforeForward    = "^-A FORWARD .*load balancer firewall"
)

// rawTable is a table raw with the given rules.
func rawTable(rules string) edit {
	return before("^\\*mangle", "*raw\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n"+rules+"\nCOMMIT")
}

// mangleTable replaces the end of table mangle, which comes first.
func mangleTable(rules string) edit { return after("^:POSTROUTING ACCEPT .217958", rules) }

// TestReach adds rules of other programs before kube-proxy's jumps to the rules of a node with
// flannel and Docker. The cases of reach.sh, which sends packets, are among them.
func TestReach(t *testing.T) {
	const (
		allFour = "4 Service ports (default/kubernetes:https, default/service1:downloader, kube-system/kube-dns:dns, ...)"
		service = "kubeproxy.way.service "
		forward = "kubeproxy.way.forward "
		early   = " ends the way of the packets before kube-proxy's rules "
	)
	for _, c := range []struct {
		what string
		edit edit
		want string // the name of the finding and its message
	}{
		{"nat ACCEPT", before(beforePrerouting, "-A PREROUTING -j ACCEPT"), service + "packets from Pods to " + allFour +
			": chain PREROUTING of table nat, line 88" + early + "(ACCEPT)"},
		{"RETURN of the Pods' link", before(beforePrerouting, "-A PREROUTING -i cni0 -j RETURN"), service +
			"packets that come in by cni0 to " + allFour + ": chain PREROUTING of table nat, line 88" + early + "(RETURN)"},
		{"RETURN in Docker's chain", before(beforePrerouting, "-A PREROUTING -j DOCKER\n-A DOCKER -s 10.244.0.0/16 -j ACCEPT"), service +
			"packets from Pods to " + allFour + ": chain DOCKER of table nat (Docker), line 89" + early + "(ACCEPT)"},
		{"NOTRACK", rawTable("-A PREROUTING -d 10.96.0.0/12 -j NOTRACK"), service +
			"packets from Pods to " + allFour + ": chain PREROUTING of table raw, line 5 excludes them from conntrack, so that kube-proxy's rules do not translate them (NOTRACK)"},
		{"mangle DROP", mangleTable("-A PREROUTING -i cni0 -j DROP"), forward +
			"packets that come in by cni0 to other machines: chain PREROUTING of table mangle, line 8 loses them (DROP)"},
		{"DNAT elsewhere", before(beforePrerouting, "-A PREROUTING -d 10.96.0.10/32 -p tcp -m tcp --dport 53 -j DNAT --to-destination 10.9.9.9:53"),
			service + "packets from Pods to this Service: chain PREROUTING of table nat, line 88 sends them elsewhere (DNAT)"},
		{"FORWARD DROP", before(beforeForward, "-A FORWARD -j DROP"), forward +
			"packets from Pods to other machines: chain FORWARD of table filter, line 35 loses them (DROP)"},
		{"FORWARD REJECT", before(beforeForward, "-A FORWARD -j REJECT --reject-with icmp-host-prohibited"), forward +
			"packets from Pods to other machines: chain FORWARD of table filter, line 35 loses them (REJECT)"},
		{"FORWARD DROP in a user's chain", before("^-A DOCKER-USER", "-A DOCKER-USER -i cni0 ! -o cni0 -j DROP"), forward +
			"packets that come in by cni0 to other machines: chain DOCKER-USER of table filter (Docker), line 53 loses them (DROP)"},
		{"FORWARD DROP of the Pods' range", before(beforeForward, "-A FORWARD -d 10.244.0.0/16 -j DROP"), forward +
			"packets from Pods to endpoints of Services: chain FORWARD of table filter, line 35 loses them (DROP)"},
		{"FORWARD DROP of the Pods' range from elsewhere", before(beforeForward, "-A FORWARD ! -s 10.244.0.0/16 -d 10.244.0.0/16 -j DROP"),
			forward + "replies of other machines to Pods: chain FORWARD of table filter, line 35 loses them (DROP)"},
		{"FORWARD DROP of a node's Pods", before(beforeForward, "-A FORWARD -d 10.244.1.0/24 -j DROP"), service +
			"packets from Pods to this Service: chain FORWARD of table filter, line 35 loses them (DROP)"},
		{"FORWARD DROP of a port of a node's Pods", before(beforeForward, "-A FORWARD -d 10.244.0.0/24 -p udp -m udp --dport 53 -j DROP"), service +
			"packets from Pods to this Service: chain FORWARD of table filter, line 35 loses them (DROP)"},
		{"FORWARD DROP of Pods of a node without endpoints", before(beforeForward, "-A FORWARD -d 10.244.7.0/24 -j DROP"), ""},
		{"FORWARD DROP of a few Pods", before(beforeForward, "-A FORWARD -d 10.244.0.0/28 -j DROP"), ""},
		{"FORWARD DROP from the Pods' bridge to itself", before(beforeForward, "-A FORWARD -i cni0 -o cni0 -j DROP"), forward +
			"packets that come in by cni0 to endpoints of Services on this node: chain FORWARD of table filter, line 35 loses them (DROP)"},
		{"FORWARD DROP of replies from the Pods' bridge to itself", before(beforeForward, "-A FORWARD -i cni0 -o cni0 -m conntrack --ctstate ESTABLISHED -j DROP"), forward +
			"replies of Pods to Pods: chain FORWARD of table filter, line 35 loses them (DROP)"},
		{"INPUT DROP of replies from Pods", before("^-A INPUT -j KUBE-FIREWALL", "-A INPUT -s 10.244.0.0/16 -m conntrack --ctstate ESTABLISHED -j DROP"), forward +
			"replies of Pods to the node: chain INPUT of table filter, line 34 loses them (DROP)"},
		{"INPUT ACCEPT of replies, then DROP of Pods", before("^-A INPUT -j KUBE-FIREWALL", "-A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT\n-A INPUT -s 10.244.0.0/16 -j DROP"), ""},
		{"FORWARD ACCEPT from the Pods' bridge to itself", before(beforeForward, "-A FORWARD -i cni0 -o cni0 -j ACCEPT\n-A FORWARD -o docker0 -j DROP"), ""},
		{"OUTPUT DROP of the Pods' range", before("^-A OUTPUT .*load balancer firewall", "-A OUTPUT -d 10.244.0.0/16 -m conntrack --ctstate NEW -j DROP"), forward +
			"packets from the node to endpoints of Services: chain OUTPUT of table filter, line 46 loses them (DROP)"},
		{"mangle OUTPUT DROP of addresses that are not translated yet", mangleTable("-A OUTPUT -d 10.244.0.0/16 -m conntrack --ctstate NEW -j DROP"), ""},
		{"an uplink of which a file knows nothing", before(beforeForward, "-A FORWARD -o eth0 -j DROP"), ""},
		{"FORWARD DROP of one Pod", before(beforeForward, "-A FORWARD -d 10.244.0.7/32 -j DROP"), ""},
		{"mangle FORWARD DROP", mangleTable("-A FORWARD -s 10.244.0.0/16 -j DROP"), forward +
			"packets from Pods to other machines: chain FORWARD of table mangle, line 8 loses them (DROP)"},
		{"nat OUTPUT ACCEPT", before(beforeOutput, "-A OUTPUT -j ACCEPT"), service + "packets from the node to " + allFour +
			": chain OUTPUT of table nat, line 90" + early + "(ACCEPT)"},
		{"raw OUTPUT NOTRACK", rawTable("-A OUTPUT -p udp -m udp --dport 53 -j CT --notrack"), service +
			"packets from the node to this Service: chain OUTPUT of table raw, line 5 excludes them from conntrack, " +
			"so that kube-proxy's rules do not translate them (CT)"},
		{"nat POSTROUTING ACCEPT", before("^-A POSTROUTING .*-j KUBE-POSTROUTING", "-A POSTROUTING -j ACCEPT"), "kubeproxy.way.masquerade " +
			"packets that kube-proxy marks to other machines: chain POSTROUTING of table nat, line 92" + early + "(ACCEPT)"},
		{"nat POSTROUTING RETURN of the mark", before("^-A POSTROUTING .*-j KUBE-POSTROUTING", "-A POSTROUTING -m mark --mark 0x4000/0x4000 -j RETURN"),
			"kubeproxy.way.masquerade packets that kube-proxy marks to other machines: chain POSTROUTING of table nat, line 92" + early + "(RETURN)"},
		{"nat POSTROUTING MASQUERADE of another program", before("^-A POSTROUTING .*-j KUBE-POSTROUTING", "-A POSTROUTING ! -d 10.0.0.0/8 -j MASQUERADE"), ""},
		{"mangle POSTROUTING DROP", mangleTable("-A POSTROUTING -j DROP"), forward +
			"packets from Pods, from the node to other machines: chain POSTROUTING of table mangle, line 8 loses them (DROP)"},
		{"filter OUTPUT DROP", before("^-A OUTPUT .*load balancer firewall", "-A OUTPUT -j DROP"), forward +
			"packets from the node to other machines: chain OUTPUT of table filter, line 46 loses them (DROP)"},
		{"half of the packets", before(beforePrerouting, "-A PREROUTING -m statistic --mode random --probability 0.5 -j ACCEPT"), service +
			"50 % of packets from Pods to " + allFour + ": chain PREROUTING of table nat, line 88" + early + "(ACCEPT)"},
		{"a test that loses a few packets", before(beforeForward, "-A FORWARD -m statistic --mode random --probability 0.01 -j DROP"), "warn " + forward +
			"1 % of packets from Pods to other machines: chain FORWARD of table filter, line 35 loses them (DROP)"},
		{"an ACCEPT of ICMP before a REJECT", before(beforeForward, "-A FORWARD -p icmp -j ACCEPT\n-A FORWARD -j REJECT"), forward +
			"packets from Pods to other machines: chain FORWARD of table filter, line 36 loses them (REJECT)"},
		{"an ACCEPT of one address before a REJECT", before(beforeForward, "-A FORWARD -d 192.0.2.1/32 -j ACCEPT\n-A FORWARD -j REJECT"), forward +
			"packets from Pods to other machines: chain FORWARD of table filter, line 36 loses them (REJECT)"},
		{"a DROP of TCP", before(beforeForward, "-A FORWARD -p tcp -j DROP"), forward +
			"packets from Pods with TCP to other machines: chain FORWARD of table filter, line 35 loses them (DROP)"},
		{"ports and ranges that Pods may use", before(beforeForward, "-A FORWARD -p icmp -j ACCEPT\n-A FORWARD -d 10.0.0.0/8 -j ACCEPT\n"+
			"-A FORWARD -p tcp -m tcp --dport 443 -j ACCEPT\n-A FORWARD -j REJECT"), ""},

		{"healthy", edit{op: "delete", line: "^:INPUT ACCEPT .217805"}, ""},
		{"kind", before(beforePrerouting, "-A PREROUTING -d 172.18.0.1/32 -j DOCKER_OUTPUT\n-A OUTPUT -d 172.18.0.1/32 -j DOCKER_OUTPUT\n"+
			"-A DOCKER_OUTPUT -d 172.18.0.1/32 -p tcp -m tcp --dport 53 -j DNAT --to-destination 127.0.0.11:41203\n"+
			"-A DOCKER_OUTPUT -d 172.18.0.1/32 -p udp -m udp --dport 53 -j DNAT --to-destination 127.0.0.11:38427"), ""},
		{"Istio's ztunnel", before(beforePrerouting, "-A PREROUTING -j ztunnel-PREROUTING\n"+
			"-A ztunnel-PREROUTING -m mark --mark 0x100/0x100 -j ACCEPT\n-A ztunnel-PREROUTING -m set --match-set ztunnel src -j ACCEPT"), ""},
		{"NodeLocal DNSCache", rawTable("-A PREROUTING -d 10.96.0.10/32 -p udp -m udp --dport 53 -m comment --comment " +
			"\"NodeLocal DNS Cache: skip conntrack\" -j NOTRACK\n-A OUTPUT -d 10.96.0.10/32 -p tcp -m tcp --dport 53 -j NOTRACK"), ""},
		{"port of a host", before(beforePrerouting, "-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT\n"+
			"-A CNI-HOSTPORT-DNAT -p tcp -m multiport --dports 53,443 -j DNAT --to-destination 10.244.0.7:80"), ""},
		{"another program's set", before(beforePrerouting, "-A PREROUTING -m set --match-set blocked src -j ACCEPT"), ""},
		{"a rate limit", before(beforeForward, "-A FORWARD -m limit --limit 5/min -j DROP"), ""},
		{"Docker's containers", before(beforePrerouting, "-A PREROUTING -i docker0 -j RETURN"), ""},
		{"an uplink", before(beforeForward, "-A FORWARD -i eth0 -p tcp -m tcp --dport 22 -j DROP"), ""},
		{"Calico", rawTable("-A PREROUTING -j cali-PREROUTING\n-A cali-PREROUTING -j MARK --set-xmark 0x0/0xf0000\n" +
			"-A cali-PREROUTING -i cali+ -j MARK --set-xmark 0x40000/0x40000\n" +
			"-A cali-PREROUTING -m mark --mark 0x40000/0x40000 -m rpfilter --validmark --invert -j DROP\n" +
			"-A cali-PREROUTING -m mark --mark 0x0/0x40000 -j cali-from-host-endpoint\n" +
			"-A cali-PREROUTING -m mark --mark 0x10000/0x10000 -j ACCEPT\n-A cali-from-host-endpoint -m comment --comment x -j RETURN"), ""},
		{"one Pod in quarantine", before(beforeForward, "-A FORWARD -i veth77 -j DROP\n-A FORWARD -i cali123 -j DROP"), ""},
		{"containers of another runtime", before(beforeForward, "-A FORWARD -i nerdctl0 -j DROP\n-A FORWARD -i cni-podman0 -j DROP\n-A FORWARD -i vnet3 -j DROP"), ""},
		{"all Pods of Calico but one", before(beforeForward, "-A FORWARD -i cali+ -m set --match-set x src -j ACCEPT\n"+
			"-A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT\n-A FORWARD ! -i cali7 -j DROP"), ""},
		{"links of all Pods", before(beforeForward, "-A FORWARD -i cali+ -j DROP"), forward +
			"packets that come in by cali+ to other machines: chain FORWARD of table filter, line 35 loses them (DROP)"},
		{"a leftover of Calico and a rule against spoofing", rawTable("-A PREROUTING -s 10.244.0.0/16 ! -i cni0 -j DROP\n" +
			"-A PREROUTING -i cali+ -j ACCEPT"), ""},
		{"an uplink of WireGuard", before(beforeForward, "-A FORWARD -o wg0 -j ACCEPT\n-A FORWARD -i wg0 -j ACCEPT\n-A FORWARD -j REJECT"), ""},
		{"an uplink of Open vSwitch", before(beforeForward, "-A FORWARD -o br-ex -j ACCEPT\n-A FORWARD -i br-ex -j ACCEPT\n-A FORWARD -j REJECT"), ""},
		{"wg-quick's kill switch", before("^-A OUTPUT .*load balancer firewall",
			"-A OUTPUT ! -o wg0 -m mark ! --mark 0xca6c -m addrtype ! --dst-type LOCAL -j REJECT"), ""},
		{"a blocklist of 1,100 addresses", before(beforeForward, blocklist("-A FORWARD -d 198.18.%d.%d/32 -j DROP", 1100)), ""},
		{"a blocklist of 1,100 addresses in raw", rawTable(blocklist("-A PREROUTING -d 198.18.%d.%d/32 -j DROP", 1100)), ""},
		{"1,100 unknown sets", before(beforePrerouting, blocklist("-A PREROUTING -m set --match-set s%d-%d dst -j ACCEPT", 1100)), ""},
		{"more marks than a walk follows", mangleTable("-A PREROUTING -m length --length 1400:1499 -j DROP\n" +
			"-A POSTROUTING -m length --length 1400:1499 -j DROP\n" + dscpMarks("PREROUTING") + dscpMarks("POSTROUTING")), ""},
		{"a chain behind a set", before(beforePrerouting, "-A PREROUTING -m set --match-set x src -j custom\n-A custom -j ACCEPT"), ""},
		{"a chain behind a set, before more marks than a walk follows", mangleTable("-A PREROUTING -m set --match-set x src -j custom\n" +
			"-A custom -j DROP\n" + dscpMarks("PREROUTING")), ""},
		{"two sets that drop everything or nothing", before(beforeForward, "-A FORWARD -m set --match-set x src -j DROP\n"+
			"-A FORWARD -m set ! --match-set x src -j DROP"), ""},
		{"Calico's default deny", before(beforeForward, "-A FORWARD -j cali-FORWARD\n-A cali-FORWARD -i cali123 -j DROP"), ""},
		{"ufw", before(beforeForward, "-A FORWARD -j ufw-before-forward\n-A ufw-before-forward -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n"+
			"-A ufw-before-forward -p icmp -m icmp --icmp-type 3 -j ACCEPT\n-A ufw-before-forward -m conntrack --ctstate INVALID -j DROP"), ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			text := declareChains(editedSave(t, readFile(t, "flannel-docker.txt"), c.edit))
			got := ""
			for _, f := range Judge(mustParse(t, text), Options{}).Findings {
				if !strings.HasPrefix(f.Name, "kubeproxy.chain.damaged") {
					if f.Verdict == verdict.Warn {
						got += "warn "
					}
					got += f.Name + " " + f.Message
				}
			}
			assert.Equal(t, got, c.want)
		})
	}
}

// blocklist returns n rules, each for another address.
func blocklist(rule string, n int) string {
	var lines []string
	for i := range n {
		lines = append(lines, fmt.Sprintf(rule, i/250, i%250+1))
	}
	return strings.Join(lines, "\n")
}

// dscpMarks returns rules that give a packet one of 128 marks.
func dscpMarks(chain string) string {
	var b strings.Builder
	for bit := 1; bit < 128; bit *= 2 {
		fmt.Fprintf(&b, "-A %s -m dscp --dscp %#x -j MARK --set-xmark %#x/%#x\n", chain, bit, bit, bit)
	}
	return b.String()
}

// TestReachKnownAddresses checks that a NOTRACK of NodeLocal DNSCache is a fault once its address is
// gone, which only a live node shows.
func TestReachKnownAddresses(t *testing.T) {
	text := editedSave(t, readFile(t, "flannel-docker.txt"), rawTable("-A PREROUTING -d 10.96.0.10/32 -p udp -m udp --dport 53 -j NOTRACK"))
	for own, want := range map[path.Answer]string{path.Yes: "", path.Unknown: "", path.No: "kubeproxy.way.service"} {
		rep := Judge(mustParse(t, text), Options{Own: func(a netip.Addr) path.Answer {
			if a.String() == "10.96.0.10" {
				return own
			}
			return path.No
		}})
		wantOne(t, rep, want)
	}
}

// TestReachNodePort checks that a closed node port is only a warning, and a taken one a failure.
func TestReachNodePort(t *testing.T) {
	for target, want := range map[string]string{"DROP": "warn", "DNAT --to-destination 192.0.2.7:80": "fail"} {
		rule := "-A PREROUTING -p tcp -m addrtype --dst-type LOCAL -m tcp --dport 31137 -j " + target
		one := before(beforePrerouting, rule)
		if target == "DROP" {
			one = before("^\\*mangle", "*raw\n:PREROUTING ACCEPT [0:0]\n"+rule+"\nCOMMIT")
		}
		rep := Judge(mustParse(t, editedSave(t, readFile(t, "iptables-save.txt"), one)), Options{})
		wantOne(t, rep, "kubeproxy.way.service")
		if f := rep.Findings[0]; f.Verdict.String() != want || f.Service != "prod/np" || !strings.HasPrefix(f.Message, "packets "+toNodePorts+" to this Service: ") {
			t.Errorf("%s: %+v", target, f)
		}
	}
}

// TestReachNodePortPassed: a rule of the uplink that takes node ports past kube-proxy's rules is found, one for another port is not.
func TestReachNodePortPassed(t *testing.T) {
	for ports, want := range map[string]string{"31000:32000": "kubeproxy.way.forward", "8443": ""} {
		rule := before(beforePrerouting, "-A PREROUTING -i eth0 -p tcp -m tcp --dport "+ports+" -j RETURN")
		rep := Judge(mustParse(t, editedSave(t, readFile(t, "iptables-save.txt"), rule)), Options{Uplink: "eth0",
			Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.10")}})
		wantOne(t, rep, want)
		if want != "" && rep.Findings[0].Verdict != verdict.Warn {
			t.Errorf("%+v", rep.Findings[0])
		}
	}
}

// TestReachNFT puts tables of other programs beside kube-proxy's tables of nftables mode.
func TestReachNFT(t *testing.T) {
	chain := func(hook, kind string, priority int, rule string) string {
		return fmt.Sprintf(`{"nftables": [{"table": {"family": "inet", "name": "mine"}},
{"chain": {"family": "inet", "table": "mine", "name": "c", "handle": 1, "type": %q, "hook": %q, "prio": %d, "policy": "accept"}},
{"rule": {"family": "inet", "table": "mine", "chain": "c", "handle": 7, "expr": [%s]}}]}`, kind, hook, priority, rule)
	}
	const (
		toRange = `{"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "daddr"}}, "right": {"prefix": {"addr": "10.96.0.0", "len": 12}}}}`
		toDNS   = `{"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "daddr"}}, "right": "10.96.0.10"}}`
		byCNI   = `{"match": {"op": "==", "left": {"meta": {"key": "iifname"}}, "right": "cni0"}}`
		seven   = "7 Service ports (default/kubernetes:https, kube-system/kube-dns:dns, kube-system/kube-dns:dns-tcp, ...)"
	)
	for _, c := range []struct{ what, table, want string }{
		{"notrack", chain("prerouting", "filter", -300, toRange+`, {"notrack": null}`), "kubeproxy.way.service packets from Pods to " + seven +
			": chain c of table inet mine, handle 7 excludes them from conntrack, so that kube-proxy's rules do not translate them (notrack)"},
		{"notrack after conntrack", chain("prerouting", "filter", -150, toRange+`, {"notrack": null}`), ""},
		{"accept of a chain before", chain("prerouting", "nat", -110, toRange+`, {"accept": null}`), ""},
		{"dnat of a chain before", chain("prerouting", "nat", -110, toDNS+`, {"dnat": {"family": "ip", "addr": "10.9.9.9"}}`),
			"kubeproxy.way.service packets from Pods to 2 Service ports (kube-system/kube-dns:dns, kube-system/kube-dns:dns-tcp): " +
				"chain c of table inet mine, handle 7 sends them elsewhere (dnat)"},
		{"dnat of a chain behind", chain("prerouting", "nat", -90, toDNS+`, {"dnat": {"family": "ip", "addr": "10.9.9.9"}}`), ""},
		{"drop of the Pods' link", chain("prerouting", "filter", 5, byCNI+`, {"drop": null}`), "kubeproxy.way.forward packets that come in " +
			"by cni0 to other machines: chain c of table inet mine, handle 7 loses them (drop)"},
		{"reject", chain("forward", "filter", -5, `{"counter": null}, {"reject": {"type": "icmpx", "expr": "admin-prohibited"}}`),
			"kubeproxy.way.forward packets from Pods to other machines: chain c of table inet mine, handle 7 loses them (reject)"},
		{"a rate limit", chain("forward", "filter", -5, `{"limit": {"rate": 5}}, {"drop": null}`), ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			got := ""
			for _, f := range Judge(mustParse(t, readFile(t, "nft-list-ruleset.json"), c.table), Options{}).Findings {
				got += f.Name + " " + f.Message
			}
			assert.Equal(t, got, c.want)
		})
	}
}

// declareChains adds declarations at the end of each table, where the parser takes them too: line numbers stay.
func declareChains(save string) string {
	var out strings.Builder
	declared, missing := map[string]bool{}, []string{}
	for line := range strings.Lines(save) {
		chain, _, _ := strings.Cut(strings.TrimPrefix(line, "-A "), " ")
		switch {
		case strings.HasPrefix(line, "*"):
			declared, missing = map[string]bool{}, nil
		case strings.HasPrefix(line, ":"):
			name, _, _ := strings.Cut(line[1:], " ")
			declared[name] = true
		case strings.HasPrefix(line, "-A ") && !declared[chain]:
			declared[chain] = true
			missing = append(missing, chain)
		case strings.HasPrefix(line, "COMMIT"):
			for _, name := range missing {
				fmt.Fprintf(&out, ":%s - [0:0]\n", name)
			}
		}
		out.WriteString(line)
	}
	return out.String()
}

// TestReachRemedy checks that a remedy does not repeat a comment which a shell would run.
func TestReachRemedy(t *testing.T) {
	for comment, want := range map[string]string{
		"x":               `remove the rule: ` + "`iptables-nft -t filter -D FORWARD -m comment --comment x -j DROP`",
		`"two words"`:     `remove the rule: ` + "`iptables-nft -t filter -D FORWARD -m comment --comment \"two words\" -j DROP`",
		`"$(id)"`:         "remove the rule by its number, which `iptables-nft -t filter -vnL FORWARD --line-numbers` prints",
		"\"`id`\"":        "remove the rule by its number, which `iptables-nft -t filter -vnL FORWARD --line-numbers` prints",
		`"a\\" ; id \\""`: "remove the rule by its number, which `iptables-nft -t filter -vnL FORWARD --line-numbers` prints",
	} {
		text := editedSave(t, readFile(t, "flannel-docker.txt"), before(beforeForward, "-A FORWARD -m comment --comment "+comment+" -j DROP"))
		found := Judge(mustParse(t, text), Options{}).Findings
		if len(found) != 1 || found[0].Remedy != want+"; find the program that adds it" {
			t.Errorf("%s: %+v", comment, found)
		}
	}
}
