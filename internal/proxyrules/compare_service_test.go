package proxyrules

import (
	"errors"
	"regexp"
	"strings"
	"testing"
)

// recordedFields is what kube-proxy 1.36 wrote for Services of every kind, and what the API said: TestFields of internal/e2e/cluster with
// RECORD.
func recordedFields(t *testing.T, mode string) (rules, svcs, eps string) {
	t.Helper()
	file := map[string]string{"iptables": "fields-iptables.txt", "nft": "fields-nft.json"}[mode]
	return readFile(t, file), readFile(t, "fields-"+mode+"-services.json"), readFile(t, "fields-"+mode+"-slices.json")
}

// TestRecordedFields: one thing that a Service says is another one than what kube-proxy wrote.
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
		{"as it was", "kept", "", "", "", ""},
		{"one more balancer", "vip", `"ip": "192.0.2.2"`, `"ip": "192.0.2.3"}, {"ip": "192.0.2.2"`, address,
			"does not answer what is sent to 192.0.2.3, port 80: it is an address of its load balancer in the API"},
		{"another balancer, no endpoints", "vip-none", "192.0.2.4", "192.0.2.5", address, "still takes what is sent to 192.0.2.4, port 80"},
		{"a balancer more, no endpoints", "vip-none", `"ip": "192.0.2.4"`, `"ip": "192.0.2.4"}, {"ip": "192.0.2.5"`, address, "192.0.2.5"},
		{"a balancer that is a proxy", "vip", `"ipMode": "VIP"`, `"ipMode": "Proxy"`, address, "still takes what is sent to 192.0.2.2"},
		{"a proxy that is an address", "vip", `"ipMode": "Proxy"`, `"ipMode": "VIP"`, address, "does not answer what is sent to 192.0.2.99"},
		{"a balancer without a mode", "vip", `, "ipMode": "VIP"`, ``, "", ""},
		{"a balancer of the other family", "vip", `"ip": "192.0.2.2"`, `"ip": "2001:db8::2"}, {"ip": "192.0.2.2"`, "", ""},
		{"a spelling that is read in two ways", "vip", `"ip": "192.0.2.2"`, `"ip": "192.0.2.010"}, {"ip": "192.0.2.2"`, "", ""},
		{"an external address more", "external-more", `"203.0.113.1"`, `"203.0.113.1", "203.0.113.2"`, address,
			"does not answer what is sent to 203.0.113.2, port 80: it is an external address"},
		{"the same in IPv6", "external-more", `"203.0.113.1"`, `"203.0.113.1", "2001:db8::1"`, "", ""},
		{"another Service's", "external-more", `"203.0.113.1"`, `"203.0.113.1", "203.0.113.3"`, "", ""},
		{"an external address less", "external-less", `"203.0.113.3"`, ``, address, "still takes what is sent to 203.0.113.3, port 80"},
		{"a longer affinity", "sticky", `"timeoutSeconds": 77`, `"timeoutSeconds": 300`, policy, "for 300 s in the API, for 77 s on this node"},
		{"an affinity without its time", "sticky", `"timeoutSeconds": 77`, ``, "", ""},
		{"now Local", "to-local", `"externalTrafficPolicy": "Cluster"`, `"externalTrafficPolicy": "Local"`, policy,
			"to endpoints of other nodes too"},
		{"now Local, none here", "to-local-none", `"externalTrafficPolicy": "Cluster"`, `"externalTrafficPolicy": "Local"`, policy,
			"of other nodes"},
		{"now Cluster", "to-cluster", `"externalTrafficPolicy": "Local"`, `"externalTrafficPolicy": "Cluster"`, policy,
			"to its own endpoints only"},
		{"now Cluster, none here", "to-cluster-none", `"externalTrafficPolicy": "Local"`, `"externalTrafficPolicy": "Cluster"`, policy, "drops"},
		{"now Cluster, no endpoints at all", "vip-none", `"externalTrafficPolicy": "Local"`, `"externalTrafficPolicy": "Cluster"`, "", ""},
		{"policy not said", "to-local", `"externalTrafficPolicy": "Cluster"`, `"x": ""`, "", ""},
		{"one range less", "ranges-less", `"198.51.100.0/24", `, ``, ranges,
			"loadBalancerSourceRanges is 203.0.112.0/21 in the API; this node lets 198.51."},
		{"one range more", "ranges-none", `"203.0.112.0/21"`, `"203.0.112.0/21", "10.0.0.0/8"`, ranges, "this node lets 203.0.112.0/21 use"},
		{"a narrower range", "ranges-none", `"203.0.112.0/21"`, `" 203.0.112.0/22 "`, ranges, "is 203.0.112.0/22 in the API"},
		{"no ranges", "ranges-none", `"loadBalancerSourceRanges": ["203.0.112.0/21"], `, ``, ranges, "anybody may use"},
		{"everybody", "ranges-none", `"203.0.112.0/21"`, `"203.0.112.0/21", "0.0.0.0/0"`, ranges, "anybody may use"},
		{"ranges at last", "ranges-now", `"ports"`, `"loadBalancerSourceRanges": ["10.0.0.0/8"], "ports"`, ranges, "lets anybody use"},
		{"ranges, no endpoints", "vip-none", `"ports"`, `"loadBalancerSourceRanges": ["10.0.0.0/8"], "ports"`, "", ""},
		{"ranges of the other family", "ranges-now", `"ports"`, `"loadBalancerSourceRanges": ["2001:db8::/32"], "ports"`, "", ""},
		{"the same ranges, cut otherwise", "ranges-none", `"203.0.112.0/21"`, `" 203.0.116.0/22 ", "203.0.112.7/22"`, "", ""},
		{"a range that is none", "ranges-none", `"203.0.112.0/21"`, `"203.0.112.000/21"`, "", ""},
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

// TestFieldsIPv6: only addresses and ranges of the rules' family count, and older versions write some things otherwise.
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
			`"prod/web:http loadbalancer IP" -m tcp --dport 80 -j FW(prod/web:http tcp)`)}
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
		{"IPv4 is everybody's", nil, "192.0.2.0/24", "0.0.0.0/0", ""},
		{"IPv6 is everybody's", nil, "192.0.2.0/24", "::/0", ranges},
		{"and written so", everybody, "192.0.2.0/24", "::/0", ""},
		{"everybody in the rules only", everybody, "", "", ranges},
		{"before 1.30 a proxy's address may use itself", own, `{"hostname": "x"}`, `{"ip": "2001:db8::6", "ipMode": "Proxy"}`, ""},
		{"before 1.30 a proxy's address is served", nil, `{"ip": "2001:db8::7"}`, `{"ip": "2001:db8::7", "ipMode": "Proxy"}`, ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			rules := mustParse(t, hashed(editedSave(t, formIPv6, c.edits...)))
			wantOne(t, Judge(rules, Options{Services: services(t, strings.Replace(both, c.old, c.now, 1))}), c.want)
		})
	}
}

// TestProxiedRanges: kube-proxy 1.30 and later enforces no ranges where the load balancer answers all addresses itself, and its rules may
// look like those of 1.25. Where the rules have such an address, as those before 1.30 do, its ranges are compared.
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
			t.Errorf("%s: taken for %s", c.what, rep.Version)
		}
		wantOne(t, rep, c.want)
	}
}

// TestSourceRangesState: kube-proxy that changes the ranges is at work.
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

// TestNoExternalIPs: a kube-proxy that serves no externalIPs is right not to.
func TestNoExternalIPs(t *testing.T) {
	rules, svcs, _ := recordedFields(t, "nft")
	svcs = inService(svcs, "external-more", `"203.0.113.1"`, `"203.0.113.1", "203.0.113.2"`)
	for off, want := range map[bool]string{true: "", false: "kubeproxy.truth.service-address"} {
		rep := Judge(mustParse(t, rules), Options{})
		rep.NoExternalIPs = func() bool { return off }
		wantOne(t, Judgment{Findings: Compare(&rep, Options{Services: services(t, svcs)})}, want)
	}
}

// TestNoWayToExternal: a kube-proxy that serves no externalIPs writes their chains all the same, and nothing that leads there. Chains of
// other kinds that nothing leads to are left over.
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
			rep := Judge(mustParse(t, rules), Options{NoExternalIPs: func() bool { return off }})
			wantOne(t, rep, want)
			if off {
				wantOne(t, Judgment{Findings: Compare(&rep, Options{Services: services(t, svcs), Endpoints: endpoints(t, eps), NodeName: node})}, "")
			}
		}
	}
	stray := editedSave(t, readFile(t, "fields-iptables.txt"), after(`^\*nat`, ":KUBE-SVC-AAAAAAAAAAAAAAAA - [0:0]"))
	wantOne(t, Judge(mustParse(t, stray), Options{NoExternalIPs: func() bool { return true }}), left)
}

// TestHealthPorts: a port that kube-proxy does not listen on is found, unless it answers no node ports at all, is not there, or something
// worse is wrong with the Service; what could not be seen is unknown.
func TestHealthPorts(t *testing.T) {
	const closed, port = "kubeproxy.healthport.closed", `"healthCheckNodePort": `
	for _, mode := range []string{"iptables", "nft"} {
		rules, svcs, eps := recordedFields(t, mode)
		var open []uint16
		for _, p := range services(t, svcs).list {
			open = append(open, uint16(p.health))
		}
		var nowhere string // node ports are answered
		if mode == "iptables" {
			nowhere = editedSave(t, rules, del("^-A KUBE-SERVICES .*-j KUBE-NODEPORTS"))
		} else {
			nowhere = editedNFT(t, rules, edit{op: "cut", line: `"name": "nodeport-ips"`, old: `, "elem": `})
		}
		for _, c := range []struct {
			what      string
			rules     string
			svcs      string
			listening func() (map[uint16]bool, error)
			want      string
		}{
			{"all", rules, svcs, ports(open...), ""},
			{"not asked", rules, svcs, nil, ""},
			{"no kube-proxy", rules, svcs, func() (map[uint16]bool, error) { return nil, nil }, ""},
			{"none", rules, svcs, ports(), closed + " " + closed},
			{"not seen", rules, svcs, func() (map[uint16]bool, error) { return nil, errors.New("EPERM") }, "kubeproxy.healthport.unread"},
			{"another one", rules, inService(svcs, "kept", port+"3", port+"1"), ports(open...), closed},
			{"policy Cluster", rules, inService(svcs, "kept", `"externalTrafficPolicy": "Local"`, `"externalTrafficPolicy": "Cluster"`),
				ports(open...), "kubeproxy.truth.service-policy"},
			{"something else", rules, inService(svcs, "kept", "192.0.2.1", "192.0.2.77"), ports(),
				"kubeproxy.truth.service-address " + closed},
			{"no node ports", nowhere, svcs, ports(), ""},
			{"endpoints too", rules, svcs, ports(), "kubeproxy.truth.endpoint-stale " + closed},
		} {
			t.Run(c.what+" "+mode, func(t *testing.T) {
				rep := Judge(mustParse(t, c.rules), Options{})
				rep.Listening, rep.Findings = c.listening, nil
				eps := eps
				if c.what == "endpoints too" {
					eps = editedSave(t, eps, sub(`"kept-1"`, "10.245.0.2", "10.245.9.9"))
				}
				wantOne(t, Judgment{Findings: Compare(&rep, Options{Services: services(t, c.svcs), Endpoints: endpoints(t, eps)})}, c.want)
			})
		}
	}
}

// TestHealthPortVersions: a port that kube-proxy does not listen on is explained by a version that asks for none, and by no other.
func TestHealthPortVersions(t *testing.T) {
	rules, svcs, eps := recordedFields(t, "nft")
	v := NewVersions()
	if err := errors.Join(v.ReadServices(strings.NewReader(svcs)), v.ReadEndpointSlices(strings.NewReader(eps))); err != nil {
		t.Fatal(err)
	}
	rep, kept := Judge(mustParse(t, rules), Options{}), ServicePort{"default/kept", "ip"}
	rep.Listening = ports()
	if found := v.Differences(&rep, kept, "node-nftables", ""); names(found) != "kubeproxy.healthport.closed" {
		t.Errorf("it differs by %q", names(found))
	}
	if v.Explain(&rep, kept, "node-nftables", "") {
		t.Error("explained by a version that asks for the port")
	}
	object, after, _ := strings.Cut(svcs[strings.Index(svcs, `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "kept"`):], "},\n")
	none, err := ServiceChange([]byte(strings.Replace(object+"}", `"healthCheckNodePort"`, `"x"`, 1)), false)
	if err != nil || after == "" {
		t.Fatal(err)
	}
	v.Apply(none)
	if !v.Explain(&rep, kept, "node-nftables", "") {
		t.Error("not explained by a version that asks for none")
	}
}

func ports(open ...uint16) func() (map[uint16]bool, error) {
	set := map[uint16]bool{}
	for _, p := range open {
		set[p] = true
	}
	return func() (map[uint16]bool, error) { return set, nil }
}
