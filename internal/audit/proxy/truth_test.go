package proxy

import (
	"fmt"
	"strings"
	"testing"

	"nodegate/internal/verdict"
)

// sliceText returns an EndpointSliceList with one slice of prod/np. Each endpoint is "ip" with
// flags: r ready, s serving, t terminating, @node, +zone hint, *node hint.
func sliceText(labels string, endpoints ...string) string {
	var list []string
	for _, e := range endpoints {
		ip, flags, _ := strings.Cut(e, " ")
		var conditions, rest []string
		for _, c := range []struct{ flag, name string }{{"r", "ready"}, {"s", "serving"}, {"t", "terminating"}} {
			conditions = append(conditions,
				`"`+c.name+`": `+map[bool]string{true: "true", false: "false"}[strings.Contains(strings.Fields(flags + " x")[0], c.flag)])
		}
		var hints []string
		for _, f := range strings.Fields(flags) {
			switch f[0] {
			case '@':
				rest = append(rest, `"nodeName": "`+f[1:]+`"`)
			case '+':
				hints = append(hints, `"forZones": [{"name": "`+f[1:]+`"}]`)
			case '*':
				hints = append(hints, `"forNodes": [{"name": "`+f[1:]+`"}]`)
			}
		}
		if hints != nil {
			rest = append(rest, `"hints": {`+strings.Join(hints, ", ")+`}`)
		}
		rest = append(rest, `"addresses": ["`+ip+`"]`, `"conditions": {`+strings.Join(conditions, ", ")+`}`)
		list = append(list, "{"+strings.Join(rest, ", ")+"}")
	}
	return `{"items": [{"addressType": "IPv4", "metadata": {"namespace": "prod", "name": "x", "labels": {` + labels +
		`"kubernetes.io/service-name": "np"}},
		"endpoints": [` + strings.Join(list, ", ") + `], "ports": [{"name": "", "port": 80, "protocol": "TCP"}]}], "kind": "EndpointSliceList"}`
}

// npService returns the API's prod/np.
func npService(t testing.TB, nodePort int) *Services {
	return services(t, fmt.Sprintf(`{"kind": "ServiceList", "items": [{"metadata": {"namespace": "prod", "name": "np"},
		"spec": {"clusterIP": "10.96.0.7", "ports": [{"port": 80, "nodePort": %d}]}}]}`, nodePort))
}

// TestExpectations compares rules with the endpoints .1, .2 and .3 (all or none of them local) with
// different states of the API.
func TestExpectations(t *testing.T) {
	graph := func(s Service) Judgment {
		s.Name, s.Protocol, s.Family, s.ClusterIP, s.Port = "prod/np", "tcp", "ip", "10.96.0.7", 80
		return Judgment{Mode: "iptables", Version: VersionRange{31, 36}, Services: []Service{s}, Families: map[string]bool{"ip": true}}
	}
	three := []Endpoint{{Address: "10.0.0.1:80", Chance: 0.33}, {Address: "10.0.0.2:80", Chance: 0.33},
		{Address: "10.0.0.3:80", Chance: 0.33}}
	cluster := graph(Service{Endpoints: three})
	hinted := graph(Service{Endpoints: three[:1]})
	none := graph(Service{Blocked: "reject"})
	local := graph(Service{NodePort: 30080, ExternalLocal: true, Endpoints: three, LocalEndpoints: three[:1]})
	noLocal := graph(Service{NodePort: 30080, ExternalLocal: true, Endpoints: three})
	internal := graph(Service{InternalLocal: true, LocalEndpoints: three[:1]})
	const stale, missing = "kubeproxy.truth.endpoint-stale", "kubeproxy.truth.endpoint-missing"

	for _, c := range []struct {
		name string
		rep  Judgment
		opts Options
		api  []string
		want string
	}{
		{"same", cluster, Options{}, []string{"10.0.0.1 rs", "10.0.0.2 rs", "10.0.0.3 rs"}, ""},
		{"one gone", cluster, Options{}, []string{"10.0.0.1 rs", "10.0.0.2 rs"}, stale},
		{"one not ready", cluster, Options{}, []string{"10.0.0.1 rs", "10.0.0.2 rs", "10.0.0.3"}, stale},
		{"one terminating", cluster, Options{}, []string{"10.0.0.1 rs", "10.0.0.2 rs", "10.0.0.3 st"}, stale},
		{"one more", cluster, Options{}, []string{"10.0.0.1 rs", "10.0.0.2 rs", "10.0.0.3 rs", "10.0.0.4 rs"}, missing},
		{"one more, not ready", cluster, Options{}, []string{"10.0.0.1 rs", "10.0.0.2 rs", "10.0.0.3 rs", "10.0.0.4"}, ""},
		{"one replaced", cluster, Options{}, []string{"10.0.0.1 rs", "10.0.0.2 rs", "10.0.0.4 rs"}, stale},
		{"all gone", cluster, Options{}, nil, stale},
		{"in two slices while it moves", cluster, Options{}, []string{"10.0.0.1 rs", "10.0.0.2 rs", "10.0.0.3", "10.0.0.3 rs"}, ""},
		{"all terminating: fallback", cluster, Options{}, []string{"10.0.0.1 st", "10.0.0.2 st", "10.0.0.3 st"}, ""},
		{"rejected, but there are endpoints", none, Options{}, []string{"10.0.0.1 rs"}, missing},
		{"rejected, none ready", none, Options{}, []string{"10.0.0.1"}, ""},
		{"rejected, some terminating", none, Options{}, []string{"10.0.0.1 st"}, missing},

		{"zone hints", hinted, Options{}, []string{"10.0.0.1 rs +a", "10.0.0.2 rs +b"}, ""},
		{"zone hints not used", cluster, Options{}, []string{"10.0.0.1 rs +a", "10.0.0.2 rs +b", "10.0.0.3 rs +b"}, ""},
		{"zone hints, none in the rules", none, Options{}, []string{"10.0.0.1 rs +a", "10.0.0.2 rs +b"}, missing},
		{"one without a hint", hinted, Options{}, []string{"10.0.0.1 rs +a", "10.0.0.2 rs"}, missing},
		{"node hints", hinted, Options{NodeName: "n1"}, []string{"10.0.0.1 rs *n1", "10.0.0.2 rs *n2"}, ""},
		{"node hints not used", cluster, Options{NodeName: "n1"}, []string{"10.0.0.1 rs *n1", "10.0.0.2 rs *n2", "10.0.0.3 rs *n2"}, ""},
		{"one without a node hint", hinted, Options{NodeName: "n1"}, []string{"10.0.0.1 rs *n1", "10.0.0.2 rs"}, missing},
		{"hinted, one gone", cluster, Options{}, []string{"10.0.0.1 rs +a", "10.0.0.2 rs +b"}, stale},

		{"local", local, Options{NodeName: "n1"}, []string{"10.0.0.1 rs @n1", "10.0.0.2 rs @n2", "10.0.0.3 rs @n2"}, ""},
		{"local, node not known", local, Options{}, []string{"10.0.0.1 rs @n1", "10.0.0.2 rs @n2", "10.0.0.3 rs @n2"}, ""},
		{"local is elsewhere", local, Options{NodeName: "n1"}, []string{"10.0.0.1 rs @n2", "10.0.0.2 rs @n2", "10.0.0.3 rs @n2"}, stale},
		{"local is elsewhere, while another endpoint moves", local, Options{NodeName: "n1"},
			[]string{"10.0.0.1 rs @n2", "10.0.0.2 rs @n2", "10.0.0.3 rs @n2", "10.0.0.3 @n1"}, ""},
		{"local missing", noLocal, Options{NodeName: "n1"}, []string{"10.0.0.1 rs @n1", "10.0.0.2 rs @n2", "10.0.0.3 rs @n2"}, missing},
		{"none local", noLocal, Options{NodeName: "n3"}, []string{"10.0.0.1 rs @n1", "10.0.0.2 rs @n2", "10.0.0.3 rs @n2"}, ""},
		{"local terminating: fallback", graph(Service{NodePort: 30080, ExternalLocal: true, Endpoints: three[1:],
			LocalEndpoints: three[:1]}), Options{NodeName: "n1"},
			[]string{"10.0.0.1 st @n1", "10.0.0.2 rs @n2", "10.0.0.3 rs @n2"}, ""},
		{"local terminating, not taken", noLocal, Options{NodeName: "n1"},
			[]string{"10.0.0.1 rs @n2", "10.0.0.2 rs @n2", "10.0.0.3 rs @n2", "10.0.0.4 st @n1"}, missing},
		{"internal local", internal, Options{NodeName: "n1"}, []string{"10.0.0.1 rs @n1", "10.0.0.2 rs @n2"}, ""},
		{"internal local, node not known", internal, Options{}, []string{"10.0.0.1 rs @n1", "10.0.0.2 rs @n2"}, ""},
		{"internal local, gone", internal, Options{}, []string{"10.0.0.2 rs @n2"}, stale},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.opts.Endpoints, c.opts.Services = endpoints(t, sliceText("", c.api...)), npService(t, c.rep.Services[0].NodePort)
			out := NewCollector()
			compareAPI(&c.rep, &c.opts, nil, out)
			wantOne(t, Judgment{Findings: out.List}, c.want)
		})
	}
}

// TestTruthBreakages compares the recordings with changed API objects, as after a dead watch, in
// both modes.
func TestTruthBreakages(t *testing.T) {
	eps, svcs := readFile(t, "endpointslices.json"), readFile(t, "services.json")
	for _, b := range []struct {
		name, eps, svcs, want string
	}{
		{"endpoint replaced", strings.Replace(eps, `"100.96.5.45"`, `"100.96.5.46"`, 1), svcs, "kubeproxy.truth.endpoint-stale"},
		{"port changed", strings.Replace(eps, `"port": 6443`, `"port": 443`, 1), svcs, "kubeproxy.truth.endpoint-stale"},
		{"service renamed", eps, strings.Replace(svcs, `"name": "export"`, `"name": "exports"`, 1),
			"kubeproxy.truth.service-missing kubeproxy.truth.service-stale"},
		{"ClusterIP changed", eps, strings.ReplaceAll(svcs, `10.104.21.207`, `10.104.21.208`), "kubeproxy.truth.service-address"},
		{"node port changed", eps, strings.Replace(svcs, `"nodePort": 31137`, `"nodePort": 31138`, 1), "kubeproxy.truth.service-address"},
		{"node port added", eps, inService(svcs, "export", `"port": 80,`, `"port": 80, "nodePort": 31999,`), "kubeproxy.truth.service-address"},
		{"internal policy now Local", eps, inService(svcs, "export", `"internalTrafficPolicy": "Cluster"`, `"internalTrafficPolicy": "Local"`),
			"kubeproxy.truth.service-policy"},
		{"internal policy now Cluster", eps, inService(svcs, "itp", `"internalTrafficPolicy": "Local"`, `"internalTrafficPolicy": "Cluster"`),
			"kubeproxy.truth.service-policy"},
		{"no internal policy", eps, inService(svcs, "itp", `"internalTrafficPolicy": "Local",`, ``), ""},
		{"affinity ended", eps, inService(svcs, "sticky", `"sessionAffinity": "ClientIP"`, `"sessionAffinity": "None"`),
			"kubeproxy.truth.service-policy"},
		{"affinity began", eps, inService(svcs, "export", `"sessionAffinity": "None"`, `"sessionAffinity": "ClientIP"`),
			"kubeproxy.truth.service-policy"},
		{"affinity began, no endpoints", eps, inService(svcs, "empty", `"sessionAffinity": "None"`, `"sessionAffinity": "ClientIP"`), ""},
		{"no endpoints, internal policy now Local", eps,
			inService(svcs, "empty", `"internalTrafficPolicy": "Cluster"`, `"internalTrafficPolicy": "Local"`), ""},
		{"now headless", eps, strings.ReplaceAll(svcs, `"10.104.21.207"`, `"None"`), "kubeproxy.truth.service-stale"},
		{"slices missing", strings.Replace(eps, `"kubernetes.io/service-name": "export"`, `"kubernetes.io/service-name": "gone"`, 1), svcs,
			"kubeproxy.truth.endpoint-stale"},
	} {
		for _, file := range []string{"iptables-save.txt", "nft-list-ruleset.json"} {
			t.Run(b.name+" "+file, func(t *testing.T) {
				opts := Options{Services: services(t, b.svcs), Endpoints: endpoints(t, b.eps), NodeName: "node0"}
				wantOne(t, Judge(mustParse(t, readFile(t, file)), opts), b.want)
			})
		}
	}
}

// inService changes the JSON text of one Service.
func inService(svcs, name, old, now string) string {
	before, after, _ := strings.Cut(svcs, `"name": "`+name+`",`)
	changed := strings.Replace(after, old, now, 1)
	if changed == after {
		panic(name + " has no " + old)
	}
	return before + `"name": "` + name + `",` + changed
}

// TestBrokenIsNotCompared checks that a Service with a finding in the rules is not also compared
// with the API.
func TestBrokenIsNotCompared(t *testing.T) {
	text := editedSave(t, readFile(t, "iptables-save.txt"), sub("^-A "+sepNP1+" .*DNAT", "100.96.1.1:80", "100.96.1.9:80"))
	opts := Options{Endpoints: endpoints(t, readFile(t, "endpointslices.json")), Services: services(t, readFile(t, "services.json"))}
	rep := Judge(mustParse(t, text), opts)
	wantOne(t, rep, "kubeproxy.chain.damaged")
	if i := indexService(&rep, "prod/np"); rep.Services[i].Verdict != verdict.Fail ||
		rep.Services[i].Findings[0] != "kubeproxy.chain.damaged" {
		t.Errorf("%+v", rep.Services[i])
	}
}
