package proxy

import (
	"slices"
	"strings"
	"testing"
)

// TestUpstream covers API objects that differ from the output of the standard controllers, and
// kube-proxy's handling of them (pkg/proxy of 1.28 to 1.36, informers of
// cmd/kube-proxy/app/server.go). The rules have the endpoints .1 and .2, .1 on node n1.
func TestUpstream(t *testing.T) {
	const stale, missing, left = "kubeproxy.truth.endpoint-stale", "kubeproxy.truth.endpoint-missing", "kubeproxy.truth.service-stale"
	const unanswered, address = "kubeproxy.truth.service-missing", "kubeproxy.truth.service-address"
	two := []Endpoint{{Address: "10.0.0.1:80", Chance: 0.5}, {Address: "10.0.0.2:80", Chance: 0.5}}
	served := []Service{{Name: "prod/np", Protocol: "tcp", Family: "ip", ClusterIP: "10.96.0.7", Port: 80, Endpoints: two}}
	local := []Service{served[0]}
	local[0].NodePort, local[0].ExternalLocal, local[0].LocalEndpoints = 30080, true, two[:1]
	without := []Service{served[0]}
	without[0].Endpoints = two[1:]
	in6 := []Service{{Name: "prod/np", Protocol: "tcp", Family: "ip6", ClusterIP: "fd00::7", Port: 80,
		Endpoints: []Endpoint{{Address: "[fd00::1]:80"}}}}
	blocked := []Service{{Name: "prod/np", Protocol: "tcp", Family: "ip", ClusterIP: "10.96.0.7", Port: 80, Blocked: "reject"}}
	both := sliceText("", "10.0.0.1 rs @n1", "10.0.0.2 rs @n2")
	// more adds a slice with these labels and one endpoint to both.
	more := func(labels, endpoint string) string {
		_, slice, _ := strings.Cut(sliceText(labels, endpoint), `"items": [`)
		slice, _, _ = strings.Cut(slice, `], "kind"`)
		slice = strings.Replace(slice, `"name": "x"`, `"name": "y"`, 1)
		return strings.Replace(both, `], "kind"`, ", "+slice+`], "kind"`, 1)
	}
	const headless, others = `"service.kubernetes.io/headless": "", `, `"service.kubernetes.io/service-proxy-name": "", `
	sixth := strings.NewReplacer(`"IPv4"`, `"IPv6"`, "10.0.0.1", "FD00:0::1").Replace(sliceText("", "10.0.0.1 rs"))
	for _, c := range []struct {
		what        string
		rules       []Service
		ip, labels  string // labels of the Service
		slices      string
		version     int
		want, wants string // expected with rules of 1.36, if different
	}{
		{"as usual", served, "10.96.0.7", "", both, 31, "", ""},
		{"a Service of another proxy, without its name", nil, "10.96.0.7", others, both, 31, "", ""},
		{"the same, still served", served, "10.96.0.7", others, both, 31, left, ""},
		{"a Service labelled headless", nil, "10.96.0.7", headless, both, 31, "", unanswered},
		{"the same, served", served, "10.96.0.7", headless, both, 31, "", ""},
		{"a missing Service", nil, "10.96.0.7", "", both, 31, unanswered, ""},
		{"a slice labelled headless", served, "10.96.0.7", "", more(headless, "10.0.0.3 rs"), 31, "", ""},
		{"a slice of another proxy", served, "10.96.0.7", "", more(others, "10.0.0.3 rs"), 31, "", ""},
		{"one more slice", served, "10.96.0.7", "", more("", "10.0.0.3 rs"), 31, missing, ""},
		{"IPv6 in a non-canonical form", in6, "FD00:0:0::7", "", sixth, 31, "", ""},
		{"IPv6, another address", in6, "fd00::8", "", sixth, 31, address, ""},
		{"leading zeros", served, "10.096.000.7", "", strings.ReplaceAll(both, "10.0.0.1", "010.00.0.1"), 31, "", ""},
		{"port 0", blocked, "10.96.0.7", "", strings.ReplaceAll(both, `"port": 80`, `"port": 0`), 31, "", ""},
		{"no serving condition", served, "10.96.0.7", "", strings.NewReplacer(
			`"serving": true, "terminating": false`, `"terminating": true`, `"ready": true`, `"ready": false`).Replace(both), 31, "", ""},
		{"no conditions", served, "10.96.0.7", "", strings.ReplaceAll(both, `"ready": true, "serving": true, "terminating": false`, ""),
			31, "", ""},

		{"one Pod replaces another at its address, the old one is used", without, "10.96.0.7", "", more("", "10.0.0.1 t @n1"), 31, "", ""},
		{"the same, the new one is used", served, "10.96.0.7", "", more("", "10.0.0.1 t @n1"), 31, "", ""},
		{"the same, and one is missing", []Service{blocked[0]}, "10.96.0.7", "", more("", "10.0.0.1 t @n1"), 31, missing, ""},
		{"the same, on this node", []Service{local[0]}, "10.96.0.7", "", more("", "10.0.0.1 st @n1"), 31, "", ""},
		{"the same endpoint twice", without, "10.96.0.7", "", more("", "10.0.0.1 rs @n1"), 31, missing, ""},

		{"node hints that are not followed", served, "10.96.0.7", "",
			sliceText("", "10.0.0.1 rs +z *n1", "10.0.0.2 rs +z *n2", "10.0.0.3 rs +y *n3"), 31, "", ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			api := `{"kind": "ServiceList", "items": [
				{"metadata": {"namespace": "prod", "name": "np", "labels": {` + strings.TrimSuffix(c.labels, ", ") + `}},
				"spec": {"type": "NodePort", "clusterIP": "` + c.ip + `", "ports": [{"port": 80, "protocol": "TCP"}]}}]}`
			if len(c.rules) > 0 && c.rules[0].NodePort != 0 {
				api = strings.Replace(api, `"port": 80,`, `"port": 80, "nodePort": 30080,`, 1)
			}
			for _, version := range []int{c.version, 36} {
				rep := Judgment{Mode: "iptables", Version: VersionRange{version, 36}, Services: c.rules,
					Families: map[string]bool{"ip": true, "ip6": true}}
				want := c.want
				if version == 36 && c.wants != "" {
					want = c.wants
				}
				found := Compare(&rep, Options{Services: services(t, api), Endpoints: endpoints(t, c.slices), NodeName: "n1"})
				wantOne(t, Judgment{Findings: found}, want)
			}
		})
	}
}

// TestNodePortsNowhere checks a node without any of the addresses at which kube-proxy is configured
// to serve node ports: kube-proxy writes the node ports, but no jump to them.
func TestNodePortsNowhere(t *testing.T) {
	text := editedSave(t, readFile(t, "iptables-save.txt"), del("^-A KUBE-SERVICES .*nodeports"))
	for some, want := range map[bool]string{true: "", false: "kubeproxy.chain.damaged"} {
		opts := Options{NodePortAddresses: new(some), NodeName: "node0",
			Services: services(t, readFile(t, "services.json")), Endpoints: endpoints(t, readFile(t, "endpointslices.json"))}
		wantOne(t, Judge(mustParse(t, text), opts), want)
	}
}

// TestUnserved checks that an address family without rules on a live node is reported, or noted if
// kube-proxy may correctly omit it.
func TestUnserved(t *testing.T) {
	const missing, unwritten = "kubeproxy.truth.family-missing", "kubeproxy.table.unwritten"
	const ip, ip6 = `"10.96.0.1"`, `"fd00::1"`
	list := func(kubernetes, other string) string {
		return `{"kind": "ServiceList", "items": [
			{"metadata": {"namespace": "default", "name": "kubernetes"}, "spec": {"clusterIPs": [` + kubernetes + `], "ports": [{"port": 443}]}},
			{"metadata": {"namespace": "prod", "name": "np"}, "spec": {"clusterIPs": [` + other + `], "ports": [{"port": 80}]}}]}`
	}
	in := func(families ...string) map[string]bool {
		all := map[string]bool{}
		for _, f := range families {
			all[f] = true
		}
		return all
	}
	known := func(wrote, known bool) func(string) (bool, bool) {
		return func(string) (bool, bool) { return wrote, known }
	}
	broken := Finding{Name: "kubeproxy.mode.ipvs", Family: "ip"}
	for _, c := range []struct {
		what, list string
		families   map[string]bool
		wrote      func(string) (bool, bool)
		want       string
		notes      int
	}{
		{"the family of default/kubernetes", list(ip, ip), in("ip6"), known(false, false), missing, 0},
		{"the same, of IPv6", list(ip6, ip6), in("ip"), known(false, false), missing, 0},
		{"the same, and kube-proxy has written it", list(ip, ip), in("ip6"), known(true, true), missing, 0},
		{"the same, not written by kube-proxy", list(ip, ip), in("ip6"), known(false, true), unwritten, 0},
		{"another", list(ip, ip6), in("ip"), known(false, false), "", 1},
		{"another family, written by kube-proxy", list(ip, ip6), in("ip"), known(true, true), missing, 0},
		{"another family, without Services in the API", list(ip, ip), in("ip"), known(true, true), "", 0},
		{"rules of a file", list(ip, ip), in("ip6"), nil, "", 0},
		{"no rules", list(ip, ip), in(), known(true, true), "", 0},
	} {
		rep := Judgment{Mode: "nftables", Version: VersionRange{36, 36}, Families: c.families}
		opts := Options{Services: services(t, c.list), Live: Live{Wrote: c.wrote}}
		for range 2 {
			found := slices.DeleteFunc(Compare(&rep, opts), func(f Finding) bool { return f.Service != "" })
			if wantOne(t, Judgment{Findings: found}, c.want); len(rep.Notes) != c.notes {
				t.Errorf("%s: notes %q", c.what, rep.Notes)
			}
		}
		if c.want == "" {
			continue
		}
		rep.Findings = []Finding{broken, {Name: "kubeproxy.table.missing", Family: "ip6"}}
		for _, f := range Compare(&rep, opts) {
			if f.Service == "" {
				t.Errorf("%s: reported although the reason is known: %+v", c.what, f)
			}
		}
	}
}

// TestDispatchesNone checks a cluster without IPv6 whose nodePortAddresses contain IPv6 addresses,
// none of them on this node: table nat of IPv6 contains only masquerading rules.
func TestDispatchesNone(t *testing.T) {
	none := []edit{delAll(`^-A KUBE-(SERVICES|NODEPORTS|EXTERNAL|PROXY-F|(SVC|SVL|SEP|EXT|FW)-)`), delAll(`^:KUBE-(SVC|SVL|SEP|EXT|FW)-`)}
	const flushed = "kubeproxy.table.flushed"
	for _, c := range []struct {
		what  string
		edits []edit
		opts  Options
		want  string
	}{
		{"nodePortAddresses", none, Options{NodePortAddresses: new(true)}, ""},
		{"the same, without the Services", none, Options{WithoutServices: true}, ""},
		{"every address", none, Options{NodePortAddresses: new(false)}, flushed},
		{"unknown", none, Options{}, flushed},
		{"the masquerading rules are missing", append(slices.Clone(none), delAll("^-A KUBE-POSTROUTING")),
			Options{NodePortAddresses: new(true)}, flushed},
		{"chains of Services are left", none[:1], Options{NodePortAddresses: new(true)}, flushed},
		{"flushed, then restored by kubelet", append(slices.Clone(none), delAll("^-A (PREROUTING|OUTPUT -m comment)")),
			Options{NodePortAddresses: new(true)}, "kubeproxy.jump.missing kubeproxy.jump.missing"},
	} {
		t.Run(c.what, func(t *testing.T) {
			wantOne(t, Judge(mustParse(t, editedSave(t, hashed(formIPv6), c.edits...)), c.opts), c.want)
		})
	}
}
