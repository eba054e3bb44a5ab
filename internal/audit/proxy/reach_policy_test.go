package proxy

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/audit/path"
	"nodegate/internal/verdict"
)

const flannelJump = "^-A FORWARD -m comment --comment .flanneld forward"

// ufw's chains as ufw 0.36 writes them, with the default for routed packets.
const ufwForward = `-A FORWARD -j ufw-before-logging-forward
-A FORWARD -j ufw-before-forward
-A FORWARD -j ufw-after-forward
-A FORWARD -j ufw-after-logging-forward
-A FORWARD -j ufw-reject-forward
-A FORWARD -j ufw-track-forward
-A ufw-after-logging-forward -m limit --limit 3/min --limit-burst 10 -j LOG --log-prefix "[UFW BLOCK] "
-A ufw-before-forward -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A ufw-before-forward -p icmp -m icmp --icmp-type 3 -j ACCEPT
-A ufw-before-forward -p icmp -m icmp --icmp-type 8 -j ACCEPT
-A ufw-before-forward -j ufw-user-forward
-A ufw-user-limit-accept -j ACCEPT`

// firewalld's chains as firewalld 1.3 writes them with its backend iptables, for the zone public.
const firewalldForward = `-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED,DNAT -j ACCEPT
-A FORWARD -i lo -j ACCEPT
-A FORWARD -j FORWARD_direct
-A FORWARD -j FORWARD_POLICIES_pre
-A FORWARD -j FORWARD_IN_ZONES
-A FORWARD -j FORWARD_OUT_ZONES
-A FORWARD -j FORWARD_POLICIES_post
-A FORWARD -m conntrack --ctstate INVALID -j DROP
-A FORWARD -j REJECT --reject-with icmp-host-prohibited
-A FORWARD_IN_ZONES -i eth0 -g FWDI_public
-A FORWARD_IN_ZONES -g FWDI_public
-A FORWARD_OUT_ZONES -o eth0 -g FWDO_public
-A FORWARD_OUT_ZONES -g FWDO_public
-A FWDI_public -j FWDI_public_pre
-A FWDI_public -j FWDI_public_log
-A FWDI_public -j FWDI_public_deny
-A FWDI_public -j FWDI_public_allow
-A FWDI_public -j FWDI_public_post
-A FWDI_public -p icmp -j ACCEPT
-A FWDO_public -j FWDO_public_pre
-A FWDO_public -j FWDO_public_log
-A FWDO_public -j FWDO_public_deny
-A FWDO_public -j FWDO_public_allow
-A FWDO_public -j FWDO_public_post`

// pastFlannel puts rules in the place of flannel's ACCEPT.
func pastFlannel(policy, rules string) (edits []edit) {
	if policy != "DROP" {
		edits = append(edits, sub("^:FORWARD DROP", "FORWARD DROP", "FORWARD "+policy))
	}
	if rules != "" {
		edits = append(edits, before(flannelJump, rules))
	}
	var declared []string
	for _, to := range regexp.MustCompile(`-[jg] ((?:ufw-|FORWARD_|FWD)\S+)`).FindAllStringSubmatch(rules, -1) {
		if !slices.Contains(declared, to[1]) && !strings.Contains(rules, "-A "+to[1]+" ") { // declareChains adds the others
			declared = append(declared, to[1])
			edits = append(edits, before("^:DOCKER-USER - ", ":"+to[1]+" - [0:0]"))
		}
	}
	return append(edits, del(flannelJump))
}

// TestReachPolicies checks the policies of chains, and rules that only replies do not pass.
func TestReachPolicies(t *testing.T) {
	const (
		toOthers = "kubeproxy.way.forward packets from Pods to other machines: "
		replies  = "kubeproxy.way.forward replies "
	)
	for _, c := range []struct {
		what  string
		edits []edit
		want  string
	}{
		{"flannel's ACCEPT under a policy DROP", nil, ""},
		{"flannel's ACCEPT lost under a policy DROP", []edit{del(flannelJump)},
			toOthers + "chain FORWARD of table filter, line 16 loses them (policy DROP)"},
		{"the same with Calico, which may forward by eBPF", pastFlannel("DROP", "-A FORWARD -j cali-FORWARD"), ""},
		{"the same with kube-router's chains, which do not forward", pastFlannel("DROP", "-A FORWARD -j KUBE-ROUTER-FORWARD\n-A KUBE-ROUTER-FORWARD -j RETURN"), toOthers +
			"chain FORWARD of table filter, line 16 loses them (policy DROP)"},
		{"kube-router's rules for Pods, of which there are none now", pastFlannel("DROP", "-A FORWARD -j KUBE-ROUTER-FORWARD\n"+
			"-A KUBE-ROUTER-FORWARD -j RETURN\n-A FORWARD -m mark --mark 0x20000/0x20000 -j ACCEPT"), ""},
		{"a chain with a name like kube-proxy's", []edit{before(beforeForward, "-A FORWARD -j KUBE-X\n-A KUBE-X -j DROP")},
			toOthers + "chain KUBE-X of table filter, line 36 loses them (DROP)"},
		{"another program's rule in kubelet's chain", []edit{before("^-A KUBE-FIREWALL", "-A KUBE-FIREWALL -m conntrack --ctstate ESTABLISHED -j DROP")},
			replies + "of the node to other machines: chain KUBE-FIREWALL of table filter, line 56 loses them (DROP)"},
		{"a DROP that lost its match, which has its own finding", []edit{before("^-A KUBE-FIREWALL", "-A KUBE-FIREWALL -j DROP")},
			"kubeproxy.firewall.bare-drop this DROP rule has lost its match: the node drops every packet that reaches KUBE-FIREWALL"},
		{"ufw denies routed packets", pastFlannel("DROP", ufwForward), toOthers + "chain FORWARD of table filter, line 16 loses them (policy DROP)"},
		{"ufw allows routed packets", pastFlannel("ACCEPT", ufwForward), ""},
		{"ufw rejects routed packets", pastFlannel("DROP", ufwForward+"\n-A ufw-reject-forward -j REJECT --reject-with icmp-port-unreachable"),
			toOthers + "chain ufw-reject-forward of table filter (ufw), line 61 loses them (REJECT)"},
		{"ufw with a rule for the Pods", pastFlannel("DROP", ufwForward+"\n-A ufw-user-forward -s 10.244.0.0/16 -j ACCEPT\n"+
			"-A ufw-user-forward -d 10.244.0.0/16 -j ACCEPT"), ""},
		{"firewalld rejects", pastFlannel("ACCEPT", firewalldForward), toOthers + "chain FORWARD of table filter, line 66 loses them (REJECT)"},
		{"firewalld with flannel's ACCEPT first", []edit{after(flannelJump, firewalldForward)}, ""},
		{"firewalld's masquerading zone", pastFlannel("ACCEPT", firewalldForward+
			"\n-A FWDO_public_allow -m conntrack --ctstate NEW,UNTRACKED -j ACCEPT"), ""},
		{"a policy of mangle", []edit{sub("^:FORWARD ACCEPT .383", "ACCEPT", "DROP")},
			toOthers + "chain FORWARD of table mangle, line 5 loses them (policy DROP)"},
		{"a policy of OUTPUT", []edit{sub("^:OUTPUT ACCEPT .16281", "ACCEPT", "DROP")},
			"kubeproxy.way.forward packets from the node to other machines: chain OUTPUT of table filter, line 17 loses them (policy DROP)"},

		{"only the first packets pass", pastFlannel("ACCEPT", "-A FORWARD -i cni0 -j ACCEPT\n-A FORWARD -m conntrack --ctstate NEW -j ACCEPT\n-A FORWARD -d 10.244.0.0/16 -j DROP"), ""},
		{"replies dropped before KUBE-FORWARD", []edit{before(beforeForward, "-A FORWARD -d 10.244.0.0/16 ! -s 10.244.0.0/16 -m conntrack --ctstate ESTABLISHED -j DROP")},
			replies + "of other machines to Pods: chain FORWARD of table filter, line 35 loses them (DROP)"},
		{"a DROP of the uplink in Docker's chain, which comes first", []edit{before(beforeForward, "-A FORWARD -j DOCKER-USER"),
			before("^-A DOCKER-USER -j RETURN", "-A DOCKER-USER -i eth0 ! -s 192.168.1.1/32 -j DROP")},
			replies + "of other machines to Pods: chain DOCKER-USER of table filter (Docker), line 54 loses them (DROP)"},
		{"a DROP of the uplink behind KUBE-FORWARD", []edit{before("^-A DOCKER-USER -j RETURN", "-A DOCKER-USER -i eth0 -j DROP")}, ""},
		{"a DROP of the uplink that accepts replies", []edit{before(beforeForward, "-A FORWARD -j DOCKER-USER"),
			before("^-A DOCKER-USER -j RETURN", "-A DOCKER-USER -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n-A DOCKER-USER -i eth0 -j DROP")}, ""},
		{"a DROP of one of two uplinks", []edit{before(beforeForward, "-A FORWARD -j DOCKER-USER\n-A FORWARD -i eth0 -o docker0 -j ACCEPT"),
			before("^-A DOCKER-USER -j RETURN", "-A DOCKER-USER -i eth1 -j DROP")}, ""},
		{"a DROP of a card for management", []edit{before(beforeForward, "-A FORWARD -i eth1 -j DROP\n-A FORWARD -o eth1 -j DROP")}, ""},
		{"INPUT drops everything", []edit{before("^-A INPUT -j KUBE-FIREWALL", "-A INPUT -i lo -j ACCEPT\n-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT\n-A INPUT -j DROP")},
			replies + "of other machines to the node with UDP: chain INPUT of table filter, line 36 loses them (DROP)"},
		{"INPUT accepts replies", []edit{before("^-A INPUT -j KUBE-FIREWALL", "-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n-A INPUT -j DROP")}, ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			text := readFile(t, "flannel-docker.txt")
			text = declareChains(editedSave(t, text, c.edits...))
			got := ""
			for _, f := range Judge(mustParse(t, text), Options{Uplink: "eth0"}).Findings {
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

// TestReachUplink: a file does not show by which link replies come in, whatever the name of a link is.
func TestReachUplink(t *testing.T) {
	text := editedSave(t, readFile(t, "flannel-docker.txt"), before(beforeForward, "-A FORWARD -i eth0 -j DROP"))
	for uplink, want := range map[string]int{"": 0, "p1p1": 0, "eth0": 1} {
		if got := Judge(mustParse(t, text), Options{Uplink: uplink, Links: []string{"eth0", "p1p1", "cni0"}}).Findings; len(got) != want {
			t.Errorf("uplink %q: %v", uplink, got)
		}
	}
}

// TestReachOneService checks rules for one address or one port: they concern the Services that have it.
func TestReachOneService(t *testing.T) {
	for _, c := range []struct {
		what string
		edit edit
		want string
	}{
		{"a ClusterIP and a port", rawTable("-A PREROUTING -d 10.96.0.10/32 -p udp -m udp --dport 53 -j DROP"),
			"kube-system/kube-dns:dns packets from Pods to this Service: chain PREROUTING of table raw, line 5 loses them (DROP)"},
		{"a port of Pods", before(beforeForward, "-A FORWARD -p udp -m udp --dport 53 -j DROP"),
			"kube-system/kube-dns:dns packets from Pods to this Service: chain FORWARD of table filter, line 35 loses them (DROP)"},
		{"a range of ports of Pods", before(beforeForward, "-A FORWARD -p tcp -m multiport --dports 1:2999,3001:65535 -j REJECT"),
			" packets from Pods to 2 Service ports (default/kubernetes:https, kube-system/kube-dns:dns-tcp): chain FORWARD of table filter, line 35 loses them (REJECT)"},
		{"one Pod", before(beforeForward, "-A FORWARD -d 10.244.0.4/32 -p udp -m udp --dport 53 -j DROP"), ""},
		{"another port", before(beforeForward, "-A FORWARD -p tcp -m tcp --dport 25 -j DROP"), ""},
	} {
		got := ""
		for _, f := range Judge(mustParse(t, declareChains(editedSave(t, readFile(t, "flannel-docker.txt"), c.edit))), Options{}).Findings {
			got += f.Service + " " + f.Message
		}
		assert.Equal(t, got, c.want, "%s", c.what)
	}
}

const beforeMasquerade = "^-A POSTROUTING .*-j KUBE-POSTROUTING"

// TestReachMasquerade checks rules of table nat before KUBE-POSTROUTING, by the packets that they take.
func TestReachMasquerade(t *testing.T) {
	for what, c := range map[string]struct{ rules, want string }{
		"the Pods' range": {"-A POSTROUTING -s 10.244.0.0/16 -j ACCEPT",
			"warn packets of a Pod to itself that kube-proxy marks to KUBE-POSTROUTING: chain POSTROUTING of table nat, line 92"},
		"other machines": {"-A POSTROUTING ! -s 10.244.0.0/16 -j RETURN",
			"fail packets that kube-proxy marks from other machines to other machines: chain POSTROUTING of table nat, line 92"},
		"between Pods": {"-A POSTROUTING -s 10.244.0.0/16 -d 10.244.0.0/16 -j RETURN",
			"warn packets of a Pod to itself that kube-proxy marks to KUBE-POSTROUTING: chain POSTROUTING of table nat, line 92"},
		"flannel": {"-A POSTROUTING -j FLANNEL-POSTRTG\n-A FLANNEL-POSTRTG -m mark --mark 0x4000/0x4000 -j RETURN\n" +
			"-A FLANNEL-POSTRTG -s 10.244.0.0/24 -d 10.244.0.0/16 -j RETURN\n-A FLANNEL-POSTRTG ! -s 10.244.0.0/16 -d 10.244.0.0/24 -j RETURN", ""},
		"Tailscale": {"-A POSTROUTING -j ts-postrouting\n-A ts-postrouting -m mark --mark 0x40000/0xff0000 -j MASQUERADE", ""},
		"a SNAT":    {"-A POSTROUTING -s 10.244.0.0/16 ! -d 10.244.0.0/16 -j SNAT --to-source 192.168.157.133", ""},
		"Docker":    {"-A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE\n-A POSTROUTING -o br-+ -m addrtype --src-type LOCAL -j ACCEPT", ""},
		"ip-masq-agent": {"-A POSTROUTING -m addrtype ! --dst-type LOCAL -j IP-MASQ-AGENT\n" +
			"-A IP-MASQ-AGENT -d 192.0.2.0/24 -j RETURN\n-A IP-MASQ-AGENT -j MASQUERADE", ""},
	} {
		got := ""
		for _, f := range Judge(mustParse(t, declareChains(editedSave(t, readFile(t, "flannel-docker.txt"), before(beforeMasquerade, c.rules)))), Options{}).Findings {
			got += f.Verdict.String() + " " + f.Message
		}
		if got, _, _ = strings.Cut(got, " ends the way"); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", what, got, c.want)
		}
	}
}

// TestReachHealthy checks the rules of programs that run on healthy nodes, before kube-proxy's.
func TestReachHealthy(t *testing.T) {
	for what, edits := range map[string][]edit{
		"Cilium beside rules that kube-proxy has left": {rawTable("-A PREROUTING -j CILIUM_PRE_raw\n-A OUTPUT -j CILIUM_OUTPUT_raw\n" +
			"-A CILIUM_PRE_raw -d 10.96.0.0/12 -j CT --notrack\n-A CILIUM_PRE_raw -s 10.244.0.0/16 -j CT --notrack\n" +
			"-A CILIUM_OUTPUT_raw -d 10.244.0.0/16 -j CT --notrack\n-A CILIUM_OUTPUT_raw -m mark --mark 0xa00/0xfffffeff -j CT --notrack\n" +
			"-A CILIUM_OUTPUT_raw -d 10.96.0.0/12 -j CT --notrack")},
		"Tailscale": {before(beforeForward, "-A FORWARD -j ts-forward\n-A ts-forward -i tailscale0 -j MARK --set-xmark 0x40000/0xff0000\n"+
			"-A ts-forward -m mark --mark 0x40000/0xff0000 -j ACCEPT\n-A ts-forward -s 100.64.0.0/10 -o tailscale0 -j DROP\n-A ts-forward -o tailscale0 -j ACCEPT"),
			before("^-A INPUT -j KUBE-FIREWALL", "-A INPUT -j ts-input\n-A ts-input -s 100.100.1.2/32 -i lo -j ACCEPT\n"+
				"-A ts-input -s 100.115.92.0/23 ! -i tailscale0 -j RETURN\n-A ts-input -s 100.64.0.0/10 ! -i tailscale0 -j DROP\n-A ts-input -i tailscale0 -j ACCEPT\n"+
				"-A ts-input -p udp -m udp --dport 41641 -j ACCEPT")},
		"ufw denies incoming packets": {sub("^:INPUT ACCEPT .16310", "ACCEPT", "DROP"), before("^-A INPUT -j KUBE-FIREWALL",
			"-A INPUT -j ufw-before-input\n-A INPUT -j ufw-after-input\n-A ufw-before-input -i lo -j ACCEPT\n"+
				"-A ufw-before-input -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n-A ufw-before-input -m conntrack --ctstate INVALID -j DROP\n"+
				"-A ufw-before-input -p udp -m udp --sport 67 --dport 68 -j ACCEPT\n-A ufw-after-input -p udp -m udp --dport 137 -j RETURN")},
		"kube-router": {before(beforeForward, "-A FORWARD -m comment --comment \"kube-router netpol\" -j KUBE-ROUTER-FORWARD\n"+
			"-A KUBE-ROUTER-FORWARD -d 10.244.0.4/32 -j KUBE-POD-FW-AAAA\n-A KUBE-ROUTER-FORWARD -s 10.244.0.4/32 -j KUBE-POD-FW-AAAA\n"+
			"-A KUBE-ROUTER-FORWARD -m mark --mark 0x20000/0x20000 -j ACCEPT\n-A KUBE-POD-FW-AAAA -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n"+
			"-A KUBE-POD-FW-AAAA -m mark ! --mark 0x10000/0x10000 -j REJECT --reject-with icmp-port-unreachable")},
		"Docker's isolation, as of Docker 28": {before(beforeForward, "-A FORWARD -j DOCKER-FORWARD\n-A DOCKER-FORWARD -j DOCKER-CT\n"+
			"-A DOCKER-CT -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n-A DOCKER-FORWARD -i docker0 -j ACCEPT\n-A DOCKER ! -i docker0 -o docker0 -j DROP"),
			rawTable("-A PREROUTING -d 172.17.0.2/32 ! -i docker0 -j DROP")},
		"kind's and Istio's rules for the node's own name server": {before(beforeOutput, "-A OUTPUT -d 172.18.0.1/32 -j DOCKER_OUTPUT\n"+
			"-A DOCKER_OUTPUT -d 172.18.0.1/32 -p udp -m udp --dport 53 -j DNAT --to-destination 127.0.0.11:41203")},
	} {
		for _, f := range Judge(mustParse(t, declareChains(editedSave(t, readFile(t, "flannel-docker.txt"), edits...))), Options{}).Findings {
			t.Errorf("%s: %s: %s", what, f.Name, f.Message)
		}
	}
}

// TestReachPolicyRemedy checks that the remedy for a policy fits the program that set it.
func TestReachPolicyRemedy(t *testing.T) {
	for rules, want := range map[string]string{
		ufwForward: "run `ufw default allow routed`",
		"":         "run `iptables-nft -t filter -P FORWARD ACCEPT`, and set net.ipv4.ip_forward=1 before Docker starts, or it sets the policy again",
	} {
		text := declareChains(editedSave(t, readFile(t, "flannel-docker.txt"), pastFlannel("DROP", rules)...))
		found := Judge(mustParse(t, text), Options{}).Findings
		if len(found) != 1 || found[0].Remedy != want {
			t.Errorf("%+v", found)
		}
	}
}

// TestReachOwnEndpoints checks the way of Pods to endpoints in the host's network, and to NodeLocal
// DNSCache: INPUT must accept them.
func TestReachOwnEndpoints(t *testing.T) {
	for _, c := range []struct{ what, rules, own, want string }{
		{"an endpoint of the host", "-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT\n-A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT\n-A INPUT -j DROP", "192.168.157.133",
			"packets from Pods to this Service: chain INPUT of table filter, line 36 loses them (DROP)"},
		{"accepted", "-A INPUT -s 10.244.0.0/16 -j ACCEPT\n-A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT\n-A INPUT -j DROP", "192.168.157.133", ""},
		{"its port accepted", "-A INPUT -p tcp -m tcp --dport 6443 -j ACCEPT\n-A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT\n-A INPUT -j DROP", "192.168.157.133", ""},
		{"Tailscale's rule for its own range", "-A INPUT -j ts-input\n-A ts-input -s 100.64.0.0/10 ! -i tailscale0 -j DROP", "192.168.157.133", ""},
		{"Tailscale's rule, which takes the Pods", "-A INPUT -j ts-input\n-A ts-input -s 10.128.0.0/9 ! -i tailscale0 -j DROP", "192.168.157.133",
			"packets from Pods to this Service: chain ts-input of table filter (Tailscale), line 35 loses them (DROP)"},
		{"NodeLocal DNSCache", "-A INPUT -p udp -m udp --dport 53 -j DROP", "10.96.0.10",
			"packets from Pods to this Service: chain INPUT of table filter, line 34 loses them (DROP)"},
		{"no NodeLocal DNSCache", "-A INPUT -p udp -m udp --dport 53 -j DROP", "192.168.157.133", ""},
	} {
		text := declareChains(editedSave(t, readFile(t, "flannel-docker.txt"), before("^-A INPUT -j KUBE-FIREWALL", c.rules)))
		rep := Judge(mustParse(t, text), Options{Own: func(a netip.Addr) path.Answer {
			if a.String() == c.own {
				return path.Yes
			}
			return path.No
		}})
		got := ""
		for _, f := range rep.Findings {
			got += f.Message
		}
		assert.Equal(t, got, c.want, "%s", c.what)
	}
}
