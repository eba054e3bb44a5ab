package proxy

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// recordedFields returns the rules of kube-proxy 1.36 for Services of every kind, and the API's
// objects. They were recorded by TestFields of internal/e2e/cluster with RECORD.
func recordedFields(t *testing.T, mode string) (rules, svcs, eps string) {
	t.Helper()
	file := map[string]string{"iptables": "fields-iptables.txt", "nft": "fields-nft.json"}[mode]
	return readFile(t, file), readFile(t, "fields-"+mode+"-services.json"), readFile(t, "fields-"+mode+"-slices.json")
}

// TestRecordedFields changes one field of a Service in the API after kube-proxy wrote its rules.
func TestRecordedFields(t *testing.T) {
	const (
		address = "kubeproxy.truth.service-address"
		policy  = "kubeproxy.truth.service-policy"
		ranges  = "kubeproxy.truth.source-ranges"
	)
	for _, c := range []struct {
		what, service, old, now string
		want, words             string
	}{
		{"unchanged", "kept", "", "", "", ""},
		{"one more balancer", "vip", `"ip": "192.0.2.2"`, `"ip": "192.0.2.3"}, {"ip": "192.0.2.2"`, address,
			"address 192.0.2.3, port 80: an address of its load balancer in the API; not served on this node"},
		{"another balancer, no endpoints", "vip-none", "192.0.2.4", "192.0.2.5", address, "address 192.0.2.4, port 80: not an address of the Service in the API; served on this node"},
		{"one more balancer, no endpoints", "vip-none", `"ip": "192.0.2.4"`, `"ip": "192.0.2.4"}, {"ip": "192.0.2.5"`, address, "192.0.2.5"},
		{"a balancer that is a proxy", "vip", `"ipMode": "VIP"`, `"ipMode": "Proxy"`, address, "address 192.0.2.2, port 80: not an address"},
		{"a proxy that is an address", "vip", `"ipMode": "Proxy"`, `"ipMode": "VIP"`, address, "address 192.0.2.99, port 80: an address of"},
		{"a balancer without a mode", "vip", `, "ipMode": "VIP"`, ``, "", ""},
		{"a balancer of the other family", "vip", `"ip": "192.0.2.2"`, `"ip": "2001:db8::2"}, {"ip": "192.0.2.2"`, "", ""},
		{"an ambiguous spelling", "vip", `"ip": "192.0.2.2"`, `"ip": "192.0.2.010"}, {"ip": "192.0.2.2"`, "", ""},
		{"one more external address", "external-more", `"203.0.113.1"`, `"203.0.113.1", "203.0.113.2"`, address,
			"address 203.0.113.2, port 80: an external address in the API; not served"},
		{"the same in IPv6", "external-more", `"203.0.113.1"`, `"203.0.113.1", "2001:db8::1"`, "", ""},
		{"an address of another Service", "external-more", `"203.0.113.1"`, `"203.0.113.1", "203.0.113.3"`, "", ""},
		{"one external address less", "external-less", `"203.0.113.3"`, ``, address, "address 203.0.113.3, port 80: not an address"},
		{"an unknown status", "vip", `"status": {`, `"x": {`, "", ""},
		{"another spelling", "external-more", `"203.0.113.1"`, `"::ffff:203.0.113.1"`, "", ""},
		{"an external address that its balancer answers", "external-more", `"loadBalancer": {}`,
			`"loadBalancer": {"ingress": [{"ip": "203.0.113.1", "ipMode": "Proxy"}]}`, "", ""},
		{"a longer affinity", "sticky", `"timeoutSeconds": 77`, `"timeoutSeconds": 300`, policy, "sessionAffinity: ClientIP (300 s) in the API; ClientIP (77 s) on this node"},
		{"an affinity without a timeout", "sticky", `"timeoutSeconds": 77`, ``, "", ""},
		{"now Local", "to-local", `"externalTrafficPolicy": "Cluster"`, `"externalTrafficPolicy": "Local"`, policy,
			"externalTrafficPolicy: Local in the API; Cluster on this node"},
		{"now Local, none here", "to-local-none", `"externalTrafficPolicy": "Cluster"`, `"externalTrafficPolicy": "Local"`, policy,
			"Local in the API"},
		{"now Cluster", "to-cluster", `"externalTrafficPolicy": "Local"`, `"externalTrafficPolicy": "Cluster"`, policy,
			"externalTrafficPolicy: Cluster in the API; Local on this node"},
		{"now Cluster, none here", "to-cluster-none", `"externalTrafficPolicy": "Local"`, `"externalTrafficPolicy": "Cluster"`, policy,
			"Cluster in the API"},
		{"now Cluster, no endpoints at all", "vip-none", `"externalTrafficPolicy": "Local"`, `"externalTrafficPolicy": "Cluster"`, "", ""},
		{"no policy", "to-local", `"externalTrafficPolicy": "Cluster"`, `"x": ""`, "", ""},
		{"one range less", "ranges-less", `"198.51.100.0/24", `, ``, ranges,
			"loadBalancerSourceRanges for 192.0.2.6: 203.0.112.0/21 in the API; 198.51.100.0/24, 203.0.112.0/21 on this node"},
		{"one range more", "ranges-none", `"203.0.112.0/21"`, `"203.0.112.0/21", "10.0.0.0/8"`, ranges, "203.0.112.0/21, 10.0.0.0/8 in the API; 203.0.112.0/21 on"},
		{"a narrower range", "ranges-none", `"203.0.112.0/21"`, `" 203.0.112.0/22 "`, ranges, "203.0.112.0/22 in the API"},
		{"no ranges", "ranges-none", `"loadBalancerSourceRanges": ["203.0.112.0/21"], `, ``, ranges, "all clients in the API; 203.0.112.0/21 on this node"},
		{"all addresses", "ranges-none", `"203.0.112.0/21"`, `"203.0.112.0/21", "0.0.0.0/0"`, ranges, "all clients in the API; 203.0.112.0/21 on this node"},
		{"ranges added", "ranges-now", `"ports"`, `"loadBalancerSourceRanges": ["10.0.0.0/8"], "ports"`, ranges, "10.0.0.0/8 in the API; all clients on"},
		{"ranges, no endpoints", "vip-none", `"ports"`, `"loadBalancerSourceRanges": ["10.0.0.0/8"], "ports"`, "", ""},
		{"ranges of the other family", "ranges-now", `"ports"`, `"loadBalancerSourceRanges": ["2001:db8::/32"], "ports"`, "", ""},
		{"the same ranges, written differently", "ranges-none", `"203.0.112.0/21"`, `" 203.0.116.0/22 ", "203.0.112.7/22"`, "", ""},
		{"an invalid range", "ranges-none", `"203.0.112.0/21"`, `"203.0.112.000/21"`, "", ""},
	} {
		for _, mode := range []string{"iptables", "nft"} {
			t.Run(c.what+" "+mode, func(t *testing.T) {
				rules, svcs, eps := recordedFields(t, mode)
				if c.old != "" {
					svcs = inService(svcs, c.service, c.old, c.now)
				}
				node := map[string]string{"iptables": "node-iptables-legacy", "nft": "node-nftables"}[mode]
				rep := Judge(mustParse(t, rules), Options{Services: services(t, svcs), Endpoints: endpoints(t, eps), NodeName: node})
				wantOne(t, rep, c.want)
				if c.want != "" && (rep.Findings[0].Service != "default/"+c.service || !strings.Contains(rep.Findings[0].Message, c.words)) {
					t.Errorf("%s: %s, want %q", rep.Findings[0].Service, rep.Findings[0].Message, c.words)
				}
			})
		}
	}
}

// TestStaleEndpointsOnce: an endpoint is counted once, for all the ways by which a Service's chains reach it.
func TestStaleEndpointsOnce(t *testing.T) {
	rules, svcs, eps := recordedFields(t, "iptables")
	eps = strings.ReplaceAll(eps, `"10.245.`, `"10.246.`)
	rep := Judge(mustParse(t, rules), Options{Services: services(t, svcs), Endpoints: endpoints(t, eps), NodeName: "node-iptables-legacy"})
	if len(rep.Findings) < 10 {
		t.Errorf("%d findings", len(rep.Findings))
	}
	for _, f := range rep.Findings {
		if !strings.HasPrefix(f.Message, "4 of 4 endpoints") {
			t.Errorf("%s: %s", f.Service, f.Message)
		}
	}
}

// TestRangesOfEachAddress deletes the element of firewall-ips of one of two addresses of a load balancer: all clients reach this one.
func TestRangesOfEachAddress(t *testing.T) {
	rules, svcs, eps := recordedFields(t, "nft")
	svcs = inService(svcs, "ranges-none", `{"ip": "192.0.2.7", "ipMode": "VIP"}`, `{"ip": "192.0.2.7", "ipMode": "VIP"}, {"ip": "192.0.2.77"}`)
	opts := Options{Services: services(t, svcs), Endpoints: endpoints(t, eps), NodeName: "node-nftables"}
	const one = `[{"concat": ["192.0.2.%s", "tcp", 80]}, {"goto": {"target": "%s-DYZPX2Q6-default/ranges-none/tcp/"}}]`
	external, firewall := fmt.Sprintf(one, "7", "external"), fmt.Sprintf(one, "7", "firewall")
	rules = strings.Replace(rules, external, external+", "+fmt.Sprintf(one, "77", "external"), 1)
	wantOne(t, Judge(mustParse(t, strings.Replace(rules, firewall, firewall+", "+fmt.Sprintf(one, "77", "firewall"), 1)), opts), "")
	rep := Judge(mustParse(t, rules), opts)
	wantOne(t, rep, "kubeproxy.truth.source-ranges")
	if got := rep.Findings[0].Message; !strings.Contains(got, "for 192.0.2.77: 203.0.112.0/21 in the API; all clients on this node") {
		t.Errorf("message %s", got)
	}
}

// TestFieldsIPv6 checks that only addresses and ranges of the rules' family count, and covers the
// different forms of older versions.
func TestFieldsIPv6(t *testing.T) {
	const (
		address = "kubeproxy.truth.service-address"
		ranges  = "kubeproxy.truth.source-ranges"
		both    = `{"kind": "List", "items": [
 {"kind": "Service", "metadata": {"namespace": "prod", "name": "far"}, "spec": {"type": "ClusterIP",
  "clusterIPs": ["10.96.0.9", "fd00:96::9"], "externalIPs": ["2001:DB8:0::9", "203.0.113.9"], "externalTrafficPolicy": "Local",
  "ports": [{"port": 80}]}, "status": {}},
 {"kind": "Service", "metadata": {"namespace": "prod", "name": "web"}, "spec": {"type": "LoadBalancer", "clusterIPs": ["fd00:96::7"],
  "loadBalancerSourceRanges": ["192.0.2.0/24", "2001:db8:1::/48"], "externalTrafficPolicy": "Cluster",
  "ports": [{"name": "http", "port": 80}], "sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}}},
  "status": {"loadBalancer": {"ingress": [{"ip": "2001:db8::7"}, {"hostname": "x"}, {"ip": "192.0.2.7"}]}}}]}`
	)
	own := []edit{before(`^-A FW\(prod/web:http tcp\) -s`,
		`-A FW(prod/web:http tcp) -s 2001:db8::6/128 -m comment --comment "prod/web:http loadbalancer IP" -j EXT(prod/web:http tcp)`),
		before(`^-A KUBE-SERVICES -d 2001:db8::7`, `-A KUBE-SERVICES -d 2001:db8::6/128 -p tcp -m comment --comment `+
			`"prod/web:http loadbalancer IP" -m tcp --dport 80 -j FW(prod/web:http tcp)`),
		before(`^-A KUBE-PROXY-FIREWALL -d 2001:db8::7`, `-A KUBE-PROXY-FIREWALL -d 2001:db8::6/128 -p tcp -m comment --comment `+
			`"prod/web:http traffic not accepted by FW(prod/web:http tcp)" -m tcp --dport 80 -j DROP`)}
	everybody := []edit{sub(`^-A FW\(prod/web:http tcp\) -s`, "-s 2001:db8:1::/48 ", "")}
	for _, c := range []struct {
		what  string
		edits []edit
		old   string
		now   string
		want  string
	}{
		{"the same", nil, "", "", ""},
		{"IPv4 changes", nil, "203.0.113.9", "203.0.113.8", ""},
		{"IPv6 changes", nil, "2001:DB8:0::9", "2001:db8::8", address},
		{"one more", nil, `{"hostname": "x"}`, `{"ip": "2001:db8::6"}`, address},
		{"IPv4 ranges change", nil, "192.0.2.0/24", "192.0.2.0/25", ""},
		{"IPv6 ranges change", nil, "2001:db8:1::/48", "2001:db8:1::/49", ranges},
		{"IPv4 admits all", nil, "192.0.2.0/24", "0.0.0.0/0", ""},
		{"IPv6 admits all", nil, "192.0.2.0/24", "::/0", ranges},
		{"IPv6 admits all in the API and the rules", everybody, "192.0.2.0/24", "::/0", ""},
		{"only the rules admit all", everybody, "", "", ranges},
		{"before 1.30, a proxied address may use itself", own, `{"hostname": "x"}`, `{"ip": "2001:db8::6", "ipMode": "Proxy"}`, ""},
		{"before 1.30, a proxied address is served", nil, `{"ip": "2001:db8::7"}`, `{"ip": "2001:db8::7", "ipMode": "Proxy"}`, ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			rules := mustParse(t, hashed(editedSave(t, formIPv6, c.edits...)))
			wantOne(t, Judge(rules, Options{Services: services(t, strings.Replace(both, c.old, c.now, 1))}), c.want)
		})
	}
}

// TestProxiedRanges checks that ranges are compared only if the rules contain an address that is
// not proxied. kube-proxy 1.30 and later enforces no ranges if the load balancer answers all
// addresses itself, but its rules may look like the rules of 1.25. Rules before 1.30 contain such
// addresses.
func TestProxiedRanges(t *testing.T) {
	const dispatch = `^-A KUBE-SERVICES -d 192.0.2.8/32 `
	rules, svcs, eps := recordedFields(t, "iptables")
	rules = editedSave(t, rules, sub("ct_state_invalid", " -m nfacct --nfacct-name  ct_state_invalid_dropped_pkts", ""))
	svcs = inService(svcs, "ranges-now", `"VIP"`, `"Proxy"`)
	ranged := inService(svcs, "ranges-now", `"ports"`, `"loadBalancerSourceRanges": ["10.0.0.0/8"], "ports"`)
	for _, c := range []struct{ what, rules, svcs, want string }{
		{"not in the rules", editedSave(t, rules, del(dispatch)), ranged, ""},
		{"in the rules", rules, ranged, "kubeproxy.truth.source-ranges"},
		{"in the rules, no ranges", rules, svcs, ""},
	} {
		rep := Judge(mustParse(t, c.rules), Options{Services: services(t, c.svcs), Endpoints: endpoints(t, eps), NodeName: "node-iptables-legacy"})
		if rep.Version.Min != 25 {
			t.Errorf("%s: detected version %s", c.what, rep.Version)
		}
		wantOne(t, rep, c.want)
	}
}

// TestSourceRangesState checks that the state of a Service port changes when kube-proxy changes the
// ranges.
func TestSourceRangesState(t *testing.T) {
	for _, mode := range []string{"iptables", "nft"} {
		rules, _, _ := recordedFields(t, mode)
		state := func(text string) string {
			rep := Judge(mustParse(t, text), Options{})
			return rep.State(ServicePort{"default/ranges-none", "ip"})
		}
		if now := state(strings.ReplaceAll(rules, "203.0.112.0", "203.0.120.0")); now == state(rules) {
			t.Errorf("%s: the state is the same with other ranges: %s", mode, now)
		}
	}
}

// TestNoExternalIPs checks that a kube-proxy without externalIPs is not reported for missing
// addresses.
func TestNoExternalIPs(t *testing.T) {
	rules, svcs, _ := recordedFields(t, "nft")
	svcs = inService(svcs, "external-more", `"203.0.113.1"`, `"203.0.113.1", "203.0.113.2"`)
	for off, want := range map[bool]string{true: "", false: "kubeproxy.truth.service-address"} {
		rep := Judge(mustParse(t, rules), Options{})
		live := Live{NoExternalIPs: off}
		wantOne(t, Judgment{Findings: Compare(&rep, Options{Services: services(t, svcs), Live: live})}, want)
	}
}

// TestNoWayToExternal checks that unreferenced chains are reported except those for externalIPs: a
// kube-proxy that serves no externalIPs writes their chains, but no jump to them.
func TestNoWayToExternal(t *testing.T) {
	const left = "kubeproxy.chain.unreferenced"
	for mode, node := range map[string]string{"iptables": "node-iptables-legacy", "nft": "node-nftables"} {
		rules, svcs, eps := recordedFields(t, mode)
		if mode == "iptables" {
			rules = editedSave(t, rules, delAll("^-A KUBE-SERVICES .* external IP"))
		} else {
			rules = regexp.MustCompile(`\[\{"concat": \["203\.0\.113\.\d+", "tcp", 80\]\}, \{"goto": [^]]*\], `).ReplaceAllString(rules, "")
		}
		for off, want := range map[bool]string{true: "", false: left + " " + left} {
			live := Live{NoExternalIPs: off}
			rep := Judge(mustParse(t, rules), Options{Live: live})
			wantOne(t, rep, want)
			if off {
				wantOne(t, Judgment{Findings: Compare(&rep,
					Options{Services: services(t, svcs), Endpoints: endpoints(t, eps), NodeName: node, Live: live})}, "")
			}
		}
	}
	stray := editedSave(t, readFile(t, "fields-iptables.txt"), after(`^\*nat`, ":KUBE-SVC-AAAAAAAAAAAAAAAA - [0:0]"))
	wantOne(t, Judge(mustParse(t, stray), Options{Live: Live{NoExternalIPs: true}}), left)
}
