package proxy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"nodegate/internal/require"
	"nodegate/internal/ruleset"
	"nodegate/internal/verdict"
)

// ipvsSave is a part of the iptables rules that kube-proxy writes in IPVS mode.
const ipvsSave = "*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-NODE-PORT - [0:0]\n:KUBE-LOAD-BALANCER - [0:0]\n-A KUBE-SERVICES -m set " +
	"--match-set KUBE-CLUSTER-IP dst,dst -j ACCEPT\nCOMMIT\n"

// virtualServers parses lines like "tcp 10.96.0.10:80 rr 77 10.0.0.1:80 10.0.0.2:80=0": the
// scheduler, the affinity in seconds or 0, and real servers with weight 1 or another weight. A
// prefix + means that the address is not on kube-ipvs0, a prefix - that it is on no interface.
// "closed tcp 192.0.2.1:80 10.0.0.0/8" restricts an address to these ranges.
func virtualServers(t testing.TB, text string) *ruleset.IPVS {
	t.Helper()
	all := &ruleset.IPVS{Bound: map[netip.Addr]bool{}, Local: map[netip.Addr]bool{}, Sources: map[ruleset.Portal][]netip.Prefix{}}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if f[0] == "closed" {
			at := ruleset.Portal{Address: netip.MustParseAddrPort(f[2]), Protocol: f[1]}
			all.Sources[at] = nil
			for _, r := range f[3:] {
				all.Sources[at] = append(all.Sources[at], netip.MustParsePrefix(r))
			}
			continue
		}
		s := ruleset.VirtualServer{Protocol: f[0], Address: netip.MustParseAddrPort(strings.TrimLeft(f[1], "+-")), Scheduler: f[2]}
		if _, err := fmt.Sscan(f[3], &s.Affinity); err != nil {
			t.Fatal(err)
		}
		all.Bound[s.Address.Addr()] = !strings.ContainsAny(f[1][:1], "+-")
		all.Local[s.Address.Addr()] = f[1][0] != '-'
		for _, real := range f[4:] {
			address, weight, weighs := strings.Cut(real, "=")
			r := ruleset.RealServer{Address: netip.MustParseAddrPort(address), Weight: 1}
			if weighs {
				if _, err := fmt.Sscan(weight, &r.Weight); err != nil {
					t.Fatal(err)
				}
			}
			s.Servers = append(s.Servers, r)
		}
		all.Servers = append(all.Servers, s)
	}
	return all
}

// ipvsNode is a node in IPVS mode with Services of every kind, ipvsServices and ipvsSlices are
// their API objects. Web has endpoints .1 to .3, of which .1 is on node a; sticky has .4; none has
// no endpoints.
const (
	ipvsNode = `
tcp 10.96.0.10:80 rr 0 10.0.0.1:8080 10.0.0.2:8080 10.0.0.3:8080
tcp 192.0.2.1:80 rr 0 10.0.0.1:8080
closed tcp 192.0.2.1:80 10.0.0.0/8 172.16.0.0/12
tcp +203.0.113.1:80 rr 0 10.0.0.1:8080
tcp +172.18.0.2:30080 rr 0 10.0.0.1:8080
tcp +10.0.0.254:30080 rr 0 10.0.0.1:8080
udp 10.96.0.11:53 rr 77 10.0.0.4:53 10.0.0.9:53=0
udp +172.18.0.2:30053 rr 77 10.0.0.4:53
udp +10.0.0.254:30053 rr 77 10.0.0.4:53
tcp 10.96.0.12:80 rr 0
tcp -198.51.100.7:8443 wlc 0 10.9.9.9:8443
tcp +172.18.0.2:8443 wlc 0 10.9.9.9:8443
`
	ipvsServices = `{"kind": "List", "items": [
 {"kind": "Service", "metadata": {"namespace": "prod", "name": "web"}, "spec": {"type": "LoadBalancer", "clusterIP": "10.96.0.10",
  "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30080}], "sessionAffinity": "None", "externalTrafficPolicy": "Local",
  "internalTrafficPolicy": "Cluster", "externalIPs": ["203.0.113.1"],
  "loadBalancerSourceRanges": ["172.16.0.0/12", "10.0.0.0/8", "2001:db8::/32"]},
  "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1", "ipMode": "VIP"}, {"ip": "192.0.2.99", "ipMode": "Proxy"}]}}},
 {"kind": "Service", "metadata": {"namespace": "prod", "name": "sticky"}, "spec": {"type": "NodePort", "clusterIP": "10.96.0.11",
  "ports": [{"port": 53, "protocol": "UDP", "nodePort": 30053}], "sessionAffinity": "ClientIP", "externalTrafficPolicy": "Cluster",
  "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 77}}}, "status": {"loadBalancer": {}}},
 {"kind": "Service", "metadata": {"namespace": "prod", "name": "none"}, "spec": {"type": "ClusterIP", "clusterIP": "10.96.0.12",
  "ports": [{"port": 80, "protocol": "TCP"}], "internalTrafficPolicy": "Local"}, "status": {"loadBalancer": {}}},
 {"kind": "Service", "metadata": {"namespace": "prod", "name": "headless"}, "spec": {"type": "ClusterIP", "clusterIP": "None",
  "ports": [{"port": 80, "protocol": "TCP"}]}, "status": {"loadBalancer": {}}}]}`
	ipvsSlices = `{"kind": "List", "items": [
 {"kind": "EndpointSlice", "addressType": "IPv4", "metadata": {"namespace": "prod", "name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
  "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": true}, "nodeName": "a"}, {"addresses": ["10.0.0.2"], "nodeName": "b",
  "conditions": {"ready": true}}, {"addresses": ["10.0.0.3"], "conditions": {"ready": true}, "nodeName": "b"}], "ports": [{"name": "", "port": 8080}]},
 {"kind": "EndpointSlice", "addressType": "IPv4", "metadata": {"namespace": "prod", "name": "sticky-1", "labels":
  {"kubernetes.io/service-name": "sticky"}}, "endpoints": [{"addresses": ["10.0.0.4"], "conditions": {"ready": true}, "nodeName": "b"}],
  "ports": [{"name": "", "port": 53, "protocol": "UDP"}]}]}`
)

// TestIPVS checks that virtual servers as kube-proxy creates them give no finding, and that each
// difference is reported with the Service and the fraction of connections.
func TestIPVS(t *testing.T) {
	const (
		stale, missing   = "kubeproxy.truth.endpoint-stale", "kubeproxy.truth.endpoint-missing"
		ranges, open     = "kubeproxy.truth.source-ranges", "closed tcp 192.0.2.1:80 10.0.0.0/8 172.16.0.0/12"
		address, policy  = "kubeproxy.truth.service-address", "kubeproxy.truth.service-policy"
		left, unanswered = "kubeproxy.truth.service-stale", "kubeproxy.truth.service-missing"
		both30           = "tcp +172.18.0.2:30081 rr 0 10.0.0.7:8080\ntcp +10.0.0.254:30081 rr 0 10.0.0.7:8080\n"
		web, draining    = "tcp 10.96.0.10:80 rr 0 10.0.0.1:8080", "10.0.0.9:53=0"
	)
	for _, c := range []struct{ what, old, now, want, service, words string }{
		{"healthy", "", "", "", "", ""},
		{"a stale endpoint", web, web + " 10.0.0.7:8080", stale, "prod/web",
			"1 of 4 endpoints in the rules are not in the API or not ready: 10.0.0.7:8080; they get 25.0 % of"},
		{"a draining endpoint", web, web + " 10.0.0.7:8080=0", "", "", ""},
		{"a draining endpoint that gets connections again", draining, "10.0.0.9:53=1", stale, "prod/sticky", "they get 50.0 % of"},
		{"by weight", "tcp 10.96.0.10:80 rr 0", "tcp 10.96.0.10:80 wrr 0 10.0.0.7:8080=5", stale, "prod/web", "they get 62.5 % of"},
		{"weights that rr does not use", "tcp 10.96.0.10:80 rr 0", "tcp 10.96.0.10:80 rr 0 10.0.0.7:8080=5", stale, "prod/web", "25.0 %"},
		{"a missing endpoint", "10.0.0.2:8080", "", missing, "prod/web", "not in the rules: 10.0.0.2:8080; the rules have 2"},
		{"a ready endpoint of weight 0", "10.0.0.2:8080", "10.0.0.2:8080=0", missing, "prod/web", "not in the rules: 10.0.0.2:8080"},
		{"another port", "10.0.0.2:8080", "10.0.0.2:80", stale, "prod/web", "10.0.0.2:80; they get 33.3 %"},
		{"no endpoint gets connections", "udp 10.96.0.11:53 rr 77 10.0.0.4:53", "udp 10.96.0.11:53 rr 77 10.0.0.4:53=0",
			missing, "prod/sticky", "10.0.0.4:53"},
		{"policy Local, another node's", "tcp 192.0.2.1:80 rr 0", "tcp 192.0.2.1:80 rr 0 10.0.0.2:8080", stale, "prod/web",
			"at 192.0.2.1:80, 1 of 2 endpoints"},
		{"a node port", "tcp +10.0.0.254:30080 rr 0 10.0.0.1:8080", "tcp +10.0.0.254:30080 rr 0 10.0.0.7:8080", stale, "prod/web",
			"at 10.0.0.254:30080, 1 of 1 endpoints"},
		{"a missing Service", "tcp 10.96.0.12:80 rr 0", "", unanswered, "prod/none", "the API has this Service at 10.96.0.12:80 (tcp)"},
		{"a stale Service", web, "udp 10.96.0.10:80 rr 0 10.0.0.7:80\n" + web, left, "10.96.0.10:80/udp",
			"still serves 10.96.0.10:80 (1 endpoints)"},
		{"a stale virtual server of another program", web, "tcp +10.96.0.13:80 rr 0 10.0.0.7:80\n" + web, "", "", ""},
		{"a node port at an address of another machine", web, "tcp -198.51.100.8:30080 rr 0 10.0.0.7:80\n" + web, "", "", ""},
		{"a stale node port", web, both30 + web, left, "10.0.0.254:30081/tcp",
			"still serves node port 30081 at 10.0.0.254 (1 endpoints), which no"},
		{"another program's port", web, strings.ReplaceAll(both30, "30081", "8080") + web, "", "", ""},
		{"at one address only", web, "tcp +10.0.0.254:30081 rr 0 10.0.0.7:8080\n" + web, "", "", ""},
		{"the balancer's address is not served", "tcp 192.0.2.1:80 rr 0", "tcp 192.0.2.1:81 rr 0", address + " " + left, "prod/web",
			"address 192.0.2.1, port 80: an address of its load balancer in the API; not served"},
		{"the proxy's address is served", web, "tcp 192.0.2.99:80 rr 0 10.0.0.1:8080\n" + web, "", "", ""},
		{"not on the device", "tcp 10.96.0.10:80", "tcp -10.96.0.10:80", address, "prod/web", "10.96.0.10 is not on kube-ipvs0"},
		{"an external address not on the node", "tcp +203.0.113.1", "tcp -203.0.113.1", address, "prod/web", "203.0.113.1 is not on kube-ipvs0"},
		{"no node port", "udp +172.18.0.2:30053 rr 77 10.0.0.4:53\nudp +10.0.0.254:30053 rr 77 10.0.0.4:53", "", address, "prod/sticky",
			"the node port: 30053 in the API; none on this node"},
		{"a node port at one address only", "udp +10.0.0.254:30053 rr 77 10.0.0.4:53", "", address, "prod/sticky",
			"does not serve node port 30053 at 10.0.0.254"},
		{"the same ranges, written differently", "10.0.0.0/8", "10.0.0.0/9 10.128.0.0/9", "", "", ""},
		{"a stale range", "10.0.0.0/8", "10.0.0.0/8 192.168.0.0/16", ranges, "prod/web", "for 192.0.2.1: 172.16.0.0/12, 10.0.0.0/8 in the API; 10.0.0.0/8, " +
			"172.16.0.0/12, 192.168.0.0/16 on this node"},
		{"no clients", open, "closed tcp 192.0.2.1:80", ranges, "prod/web", "no clients on this node"},
		{"all clients", open, "", ranges, "prod/web", "all clients on this node"},
		{"all clients in two ranges", open, "closed tcp 192.0.2.1:80 0.0.0.0/1 128.0.0.0/1", ranges, "prod/web", "all clients on this node"},
		{"no affinity", "udp 10.96.0.11:53 rr 77", "udp 10.96.0.11:53 rr 0", policy, "prod/sticky", "sessionAffinity: ClientIP (77 s) in the API; none on"},
		{"another affinity", "udp 10.96.0.11:53 rr 77", "udp 10.96.0.11:53 rr 300", policy, "prod/sticky", "(77 s) in the API; ClientIP (300 s)"},
		{"an affinity", "tcp 10.96.0.10:80 rr 0", "tcp 10.96.0.10:80 rr 10", policy, "prod/web", "sessionAffinity: none in the API"},
	} {
		t.Run(c.what, func(t *testing.T) {
			if !strings.Contains(ipvsNode, c.old) {
				t.Fatalf("no %q", c.old)
			}
			sets := append(mustParse(t, ipvsSave), &ruleset.Set{IPVS: virtualServers(t, strings.Replace(ipvsNode, c.old, c.now, 1))})
			opts := Options{Services: services(t, ipvsServices), Endpoints: endpoints(t, ipvsSlices), NodeName: "a"}
			rep := Judge(sets, opts)
			wantOne(t, rep, c.want)
			if c.want != "" && (rep.Findings[0].Service != c.service || !strings.Contains(rep.Findings[0].Message, c.words)) {
				t.Errorf("%s: %s, want %q", rep.Findings[0].Service, rep.Findings[0].Message, c.words)
			}
			alone := Judge(sets, Options{})
			wantOne(t, alone, "kubeproxy.mode.ipvs")
			if later := Compare(&alone, opts); names(later) != c.want || len(alone.Findings) != 0 {
				t.Errorf("judged, then compared: %q and %q, want %q", names(alone.Findings), names(later), c.want)
			}
		})
	}
}

// TestIPVSRanges checks ranges that contain all addresses, and a kernel without kube-proxy's
// ipsets, for which ranges are not compared.
func TestIPVSRanges(t *testing.T) {
	const ranges, own = "kubeproxy.truth.source-ranges", `["172.16.0.0/12", "10.0.0.0/8", "2001:db8::/32"]`
	for _, c := range []struct {
		what, api string
		unknown   bool
		want      string
	}{
		{"unchanged", own, false, ""},
		{"none", `[]`, false, ranges},
		{"all addresses", `["10.0.0.0/8", "0.0.0.0/0"]`, false, ranges},
		{"all addresses in two ranges", `["0.0.0.0/1", "128.0.0.0/1"]`, false, ranges},
		{"only IPv6", `["2001:db8::/32"]`, false, ranges},
		{"no sets", `[]`, true, ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			node := virtualServers(t, ipvsNode)
			if c.unknown {
				node.Sources = nil
			}
			wantOne(t, Judge(append(mustParse(t, ipvsSave), &ruleset.Set{IPVS: node}), Options{NodeName: "a",
				Services: services(t, strings.Replace(ipvsServices, own, c.api, 1)), Endpoints: endpoints(t, ipvsSlices)}), c.want)
		})
	}
}

// TestIPVSRangesState checks that the state of a Service port changes with the clients of its load
// balancer, and that the state of other Services does not.
func TestIPVSRangesState(t *testing.T) {
	state := func(node, of string) string {
		rep := Judge(append(mustParse(t, ipvsSave), &ruleset.Set{IPVS: virtualServers(t, node)}), Options{})
		api := NewVersions()
		var err, err2 error
		api.Services, err = LoadServices(strings.NewReader(ipvsServices))
		api.Endpoints, err2 = LoadEndpointSlices(strings.NewReader(ipvsSlices))
		require.NoError(t, errors.Join(err, err2))
		api.Complete(&rep, Live{})
		return rep.State(ServicePort{of, ruleset.IPv4})
	}
	other := strings.Replace(ipvsNode, "10.0.0.0/8", "11.0.0.0/8", 1)
	if state(ipvsNode, "prod/web") == state(other, "prod/web") || state(ipvsNode, "prod/sticky") != state(other, "prod/sticky") {
		t.Errorf("%q and, with another range, %q; of another Service %q and %q", state(ipvsNode, "prod/web"), state(other, "prod/web"),
			state(ipvsNode, "prod/sticky"), state(other, "prod/sticky"))
	}
}

// TestIPVSPolicies checks that the expected endpoints depend on the traffic policy, also on a node
// without endpoints.
func TestIPVSPolicies(t *testing.T) {
	const stale, missing = "kubeproxy.truth.endpoint-stale", "kubeproxy.truth.endpoint-missing"
	for _, c := range []struct{ what, node, endpoint, servers, want string }{
		{"Local, no local endpoint: remote ones", "a", "10.0.0.4 rs @b", "10.0.0.4:80", ""},
		{"Local, no local endpoint: none", "a", "10.0.0.4 rs @b", "", ""},
		{"Local, no local endpoint: a stale one", "a", "10.0.0.4 rs @b", "10.0.0.5:80", stale},
		{"Local, here", "b", "10.0.0.4 rs @b", "10.0.0.4:80", ""},
		{"Local, a local endpoint: not served", "b", "10.0.0.4 rs @b", "", missing},
		{"Local, on a node without a name", "", "10.0.0.4 rs @b", "10.0.0.4:80", ""},
		{"only terminating", "b", "10.0.0.4 st @b", "10.0.0.4:80", ""},
		{"not ready", "b", "10.0.0.4 - @b", "10.0.0.4:80", stale},
	} {
		t.Run(c.what, func(t *testing.T) {
			api := services(t, `{"kind": "List", "items": [{"kind": "Service", "metadata": {"namespace": "prod", "name": "np"}, "spec": {"type": "ClusterIP",
				"clusterIP": "10.96.0.9", "ports": [{"port": 80}], "internalTrafficPolicy": "Local"}, "status": {}}]}`)
			node := &ruleset.Set{IPVS: virtualServers(t, "tcp 10.96.0.9:80 rr 0 "+c.servers)}
			wantOne(t, Judge(append(mustParse(t, ipvsSave), node), Options{Services: api, NodeName: c.node,
				Endpoints: endpoints(t, sliceText("", c.endpoint))}), c.want)
		})
	}
}

// TestIPVSShared checks uncertain addresses. If two Services request an address, one of them gets
// the endpoints. An unreadable address may be any address. A virtual server at an address that
// kube-proxy does not bind does not belong to a Service.
func TestIPVSShared(t *testing.T) {
	const odd = `"externalIPs": ["203.0.113.1"`
	both := strings.Replace(ipvsServices, `"spec": {"type": "ClusterIP", "clusterIP": "10.96.0.12",`,
		`"spec": {"type": "ClusterIP", "clusterIP": "10.96.0.12", "externalIPs": ["203.0.113.1"],`, 1)
	for _, c := range []struct{ what, api, servers string }{
		{"shared", both, ipvsNode},
		{"unreadable", strings.Replace(ipvsServices, odd, odd+`, "203.0.113.010"`, 1), "tcp 203.0.113.8:80 rr 0 10.0.0.1:8080" + ipvsNode},
	} {
		t.Run(c.what, func(t *testing.T) {
			wantOne(t, Judge(append(mustParse(t, ipvsSave), &ruleset.Set{IPVS: virtualServers(t, c.servers)}), Options{
				Services: services(t, c.api), Endpoints: endpoints(t, ipvsSlices), NodeName: "a"}), "")
		})
	}
}

// TestIPVSUnjudged checks that missing evidence gives the verdict unknown, neither a finding nor a
// pass.
func TestIPVSUnjudged(t *testing.T) {
	dispatches := strings.Replace(ipvsSave, "COMMIT", "-A KUBE-SERVICES -d 10.96.0.1/32 -j KUBE-SVC-NPX46M4PTMTKRN6Y\nCOMMIT", 1)
	leftover := strings.Replace(ipvsSave, ":KUBE-NODE-PORT", ":KUBE-SVC-NPX46M4PTMTKRN6Y - [0:0]\n:KUBE-NODE-PORT", 1)
	node := &ruleset.Set{IPVS: virtualServers(t, ipvsNode)}
	api := Options{Services: services(t, ipvsServices), Endpoints: endpoints(t, ipvsSlices), NodeName: "a"}
	for _, c := range []struct {
		what, words string
		sets        []*ruleset.Set
		opts        Options
	}{
		{"from a file", "without its virtual servers", mustParse(t, ipvsSave), api},
		{"without Services", "without the API's Services", append(mustParse(t, ipvsSave), node), Options{}},
		{"beside iptables mode", "both IPVS mode and iptables mode", append(mustParse(t, dispatches), node), api},
		{"with what iptables mode left", "", append(mustParse(t, leftover), node), api},
		{"beside nftables mode", "another mode", append(mustParse(t, ipvsSave, readFile(t, "nft-list-ruleset.json")), node), api},
		{"of another program", "", append(mustParse(t, readFile(t, "iptables-save.txt")), node), Options{}},
	} {
		t.Run(c.what, func(t *testing.T) {
			said := ""
			for _, f := range Judge(c.sets, c.opts).Findings {
				if !strings.HasPrefix(f.Name, "kubeproxy.truth.") || c.words == "" { // differences of nftables mode come from another node
					said += f.Name + " " + f.Verdict.String() + ": " + f.Message
				}
			}
			told := strings.HasPrefix(said, "kubeproxy.mode.ipvs unknown: ") && strings.Contains(said, c.words)
			if c.words == "" && said != "" || c.words != "" && !told {
				t.Errorf("%q, want %q", said, c.words)
			}
		})
	}
}

// TestIPVSLeftRejects checks that REJECT rules of iptables mode are reported if IPVS has endpoints of the Service.
func TestIPVSLeftRejects(t *testing.T) {
	const filter = "*filter\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n" +
		"-A OUTPUT -m conntrack --ctstate NEW -j KUBE-SERVICES\n" +
		"-A KUBE-SERVICES -d %s/32 -p tcp -m comment --comment \"default/web has no endpoints\" -m tcp --dport 80 -j REJECT\nCOMMIT\n"
	for _, c := range []struct{ what, rules, want string }{
		{"with endpoints", fmt.Sprintf(filter, "10.96.0.10"), "kubeproxy.ipvs.left-reject"},
		{"without endpoints", fmt.Sprintf(filter, "10.96.0.12"), ""},
		{"without a virtual server", fmt.Sprintf(filter, "10.96.0.99"), ""},
		{"not reached", strings.Replace(fmt.Sprintf(filter, "10.96.0.10"), "-A OUTPUT", "-A OUTPUT -j ACCEPT\n#", 1), ""},
	} {
		rep := Judge(append(mustParse(t, ipvsSave+c.rules), &ruleset.Set{IPVS: virtualServers(t, ipvsNode)}), Options{
			Services: services(t, ipvsServices), Endpoints: endpoints(t, ipvsSlices), NodeName: "a"})
		var found []Finding
		for _, f := range rep.Findings {
			if strings.HasPrefix(f.Name, "kubeproxy.ipvs.") {
				found = append(found, f)
			}
		}
		if got := names(found); got != c.want {
			t.Errorf("%s: %q, want %q: %+v", c.what, got, c.want, rep.Findings)
		}
	}
	rep := Judge(mustParse(t, ipvsSave+fmt.Sprintf(filter, "10.96.0.10")), Options{})
	if i := slices.IndexFunc(rep.Findings, func(f Finding) bool { return f.Name == "kubeproxy.ipvs.left-reject" }); i < 0 ||
		rep.Findings[i].Verdict != verdict.Warn {
		t.Errorf("from a file: %+v", rep.Findings)
	}
}
