package proxy

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/audit/model"
	"nodegate/internal/require"
	"nodegate/internal/verdict"
)

func TestHashVectors(t *testing.T) {
	var h model.Hasher
	for _, v := range []struct{ port, proto, want string }{
		{"kube-system/kube-dns:dns", "udp", "TCOU7JCQXEZGVUNU"},
		{"kube-system/kube-dns:dns-tcp", "tcp", "ERIFXISQEP7F7OF4"},
		{"default/kubernetes:https", "tcp", "NPX46M4PTMTKRN6Y"},
		{"prod/export:", "tcp", "3IL52ANAN3BQ2L74"},
	} {
		assert.Equal(t, string(h.Sum16(v.port, v.proto)), v.want, "hash of %q, %q is", v.port, v.proto)
	}
	assert.Equal(t, string(h.Sum16("prod/export:", "tcp", "100.96.54.247:80")), "OAQPXBQCZ2RBB4R7", "hash of an endpoint")
	assert.Equal(t, string(h.Sum16("default/kubernetes/tcp/https")[:8]), "2QRHZV4L", "hash of nftables mode")
}

// TestHealthy checks that a healthy cluster gives no finding, with any set of options.
func TestHealthy(t *testing.T) {
	eps := endpoints(t, readFile(t, "endpointslices.json"))
	svcs := services(t, readFile(t, "services.json"))
	liberal := false
	for _, r := range []struct{ name, text, mode, version string }{
		{"iptables", readFile(t, "iptables-save.txt"), "iptables", "1.31 to 1.37"},
		{"nftables", readFile(t, "nft-list-ruleset.json"), "nftables", "1.33 to 1.35"},
	} {
		rs := mustParse(t, r.text)
		for _, o := range []Options{
			{},
			{BeLiberal: &liberal},
			{Services: svcs},
			{Endpoints: eps, Services: svcs},
			{Endpoints: eps, Services: svcs, NodeName: "node0"},
		} {
			rep := Judge(rs, o)
			wantOne(t, rep, "")
			if rep.Mode != r.mode || rep.Version.String() != r.version || len(rep.Services) != 9 {
				t.Errorf("%s: mode %s, version %s, %d Services", r.name, rep.Mode, rep.Version, len(rep.Services))
			}
		}
	}
}

// TestRulesUnchanged checks that judging does not modify the rules, because checks and the audit
// share one reading.
func TestRulesUnchanged(t *testing.T) {
	broken := editedSave(t, readFile(t, "iptables-save.txt"), delAll("^-A "+svcEX), del("^-A KUBE-FORWARD .*INVALID"))
	for _, text := range []string{broken, readFile(t, "nft-list-ruleset.json")} {
		judged, untouched := mustParse(t, text), mustParse(t, text)
		first, second := Judge(judged, Options{}), Judge(judged, Options{})
		if !reflect.DeepEqual(judged, untouched) {
			t.Error("judging modified the rules")
		}
		if !reflect.DeepEqual(first, second) {
			t.Errorf("judged twice: %s, then %s", names(first.Findings), names(second.Findings))
		}
	}
}

func TestHealthyLarge(t *testing.T) {
	rs := mustParse(t, string(large(t)))
	rep := Judge(rs, Options{})
	wantOne(t, rep, "")
	if len(rep.Services) != 5009 || rs[0].Lines != 215802 {
		t.Errorf("%d Services, %d lines", len(rep.Services), rs[0].Lines)
	}
	svcs, eps := apiOf(t, &rep)
	wantOne(t, Judge(rs, Options{Services: services(t, svcs), Endpoints: endpoints(t, eps)}), "")
}

// TestLeftInLargeCluster checks unused chains: above 1000 endpoints kube-proxy lets them stay for a
// time, so they are not reported. They belong to a Service that has lost its endpoints or its local
// endpoints, or was deleted. In a small cluster they are reported.
func TestLeftInLargeCluster(t *testing.T) {
	const (
		kept, own, vip = "AMYOSWJONJKM52OW", "SYXWEBKTFT33BG53", "ECQPZ434LW7CWPD5"
		reject         = ` -p tcp -m comment --comment "default/ranges-own has no endpoints" -m tcp --dport 80 -j REJECT`
		drop           = `-p tcp -m comment --comment "default/kept has no local endpoints" `
	)
	rules, svcs, eps := recordedFields(t, "iptables")
	rules = editedSave(t, rules,
		del("^-A KUBE-EXT-"+kept+" -j KUBE-SVL-"), // its endpoints are now on other nodes
		before("^-A KUBE-FORWARD .*INVALID", "-A KUBE-EXTERNAL-SERVICES "+drop+"-m addrtype --dst-type LOCAL -m tcp --dport 30473 -j DROP"),
		before("^-A KUBE-FORWARD .*INVALID", "-A KUBE-EXTERNAL-SERVICES -d 192.0.2.1/32 "+drop+"-m tcp --dport 80 -j DROP"),
		delAll("^-A KUBE-(SERVICES|NODEPORTS) .*-j KUBE-(SVC|FW|EXT)-"+own), // it has no endpoints
		del("^-A KUBE-PROXY-FIREWALL .*"+own),
		before("^-A KUBE-FORWARD .*INVALID", "-A KUBE-SERVICES -d 10.96.72.145/32"+reject),
		before("^-A KUBE-FORWARD .*INVALID", "-A KUBE-EXTERNAL-SERVICES -d 192.0.2.9/32"+reject),
		before("^-A KUBE-FORWARD .*INVALID", "-A KUBE-EXTERNAL-SERVICES -m addrtype --dst-type LOCAL"+strings.Replace(reject, "80", "30150", 1)),
		delAll("^-A KUBE-(SERVICES|NODEPORTS) .*-j KUBE-(SVC|EXT)-"+vip)) // it was deleted
	svcs = editedSave(t, svcs, del(`"name": "vip",`))
	eps = editedSave(t, eps, del(`"name": "vip-1"`), del(`"name": "ranges-own-1"`),
		subAll(`"name": "kept-1"`, "node-iptables-legacy", "node-elsewhere"))
	large := editedSave(t, rules, sub("^-A KUBE-SEP-2TCRXFRY7BHK4PO5 .* DNAT ", `-m comment --comment "default/ranges-none" `, ""))
	opts := Options{Services: services(t, svcs), Endpoints: endpoints(t, eps), NodeName: "node-iptables-legacy"}
	wantOne(t, Judge(mustParse(t, large), opts), "")
	if rep := Judge(mustParse(t, rules), opts); !strings.Contains(names(rep.Findings), "kubeproxy.chain.unreferenced") {
		t.Errorf("in a small cluster %q", names(rep.Findings))
	}
}

// apiOf returns Services and EndpointSlices that match a report's rules.
func apiOf(t testing.TB, rep *Judgment) (svcs, eps string) {
	t.Helper()
	type object = map[string]any
	var items, all []any
	ports := map[string]*[]object{}
	for _, s := range rep.Services {
		ns, name, port := SplitServicePort(s.Name)
		if ports[ns+name] == nil {
			ports[ns+name] = &[]object{}
			all = append(all, object{"kind": "Service", "metadata": object{"namespace": ns, "name": name},
				"spec": object{"clusterIP": s.ClusterIP, "ports": ports[ns+name]}})
		}
		*ports[ns+name] = append(*ports[ns+name], object{"name": port, "port": s.Port, "nodePort": s.NodePort, "protocol": s.Protocol})
		list := s.Endpoints
		if len(list) == 0 {
			list = s.LocalEndpoints
		}
		for _, e := range list {
			ip, number := model.SplitAddress(e.Address)
			items = append(items, object{
				"kind": "EndpointSlice", "addressType": map[string]string{"ip": "IPv4", "ip6": "IPv6"}[s.Family],
				"metadata":  object{"namespace": ns, "name": fmt.Sprint(name, "-", len(items)), "labels": object{labelService: name}},
				"endpoints": []any{object{"addresses": []string{ip}, "conditions": object{"ready": true}}},
				"ports":     []any{object{"name": port, "port": json.Number(number), "protocol": strings.ToUpper(s.Protocol)}},
			})
		}
	}
	list := func(items []any) string {
		text, err := json.Marshal(object{"kind": "List", "items": items})
		require.NoError(t, err)
		return string(text)
	}
	return list(all), list(items)
}

// TestGraph checks the graph of one Service in both modes.
func TestGraph(t *testing.T) {
	for _, r := range []struct{ file, chain string }{
		{"iptables-save.txt", "KUBE-SVC-JB6GN5ZCZEO67566"},
		{"nft-list-ruleset.json", "service-VTLL5JLX-prod/sticky/tcp/"},
	} {
		rep := Judge(mustParse(t, readFile(t, r.file)), Options{})
		i := indexService(&rep, "prod/sticky")
		if i < 0 {
			t.Fatalf("%s: no prod/sticky", r.file)
		}
		s := rep.Services[i]
		switch {
		case s.ClusterIP != "10.98.126.252", s.Port != 80, s.Protocol != "tcp", s.Family != "ip", s.AffinitySeconds != 10800,
			len(s.Chains) != 1, s.Chains[0] != r.chain, s.Verdict != verdict.Pass,
			len(s.Endpoints) != 2, s.Endpoints[0].Address != "100.96.3.1:80", s.Endpoints[1].Chance != 0.5:
			t.Errorf("%s: %+v", r.file, s)
		}
		for _, w := range []struct {
			name string
			ok   func(Service) bool
		}{
			{"prod/np", func(s Service) bool { return s.NodePort == 31137 && !s.ExternalLocal && len(s.Endpoints) == 3 }},
			{"prod/lb-local", func(s Service) bool {
				return s.NodePort == 31669 && s.ExternalLocal && len(s.Endpoints) == 3 && len(s.LocalEndpoints) == 1
			}},
			{"prod/itp", func(s Service) bool { return s.InternalLocal && len(s.Endpoints) == 0 && len(s.LocalEndpoints) == 2 }},
			{"prod/empty", func(s Service) bool { return s.Blocked == "reject" && s.ClusterIP == "10.97.80.155" }},
		} {
			if i := indexService(&rep, w.name); i < 0 || !w.ok(rep.Services[i]) {
				t.Errorf("%s: %s is %+v", r.file, w.name, rep.Services[max(i, 0)])
			}
		}
	}
}

func indexService(rep *Judgment, name string) int {
	for i := range rep.Services {
		if rep.Services[i].Name == name {
			return i
		}
	}
	return -1
}
