//go:build cluster

package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// field is one field of a Service, with its first value and the value it gets while kube-proxy is cut off.
type field struct {
	spec, later       object
	ingress, ingress2 []object
	elsewhere, empty  bool   // the endpoints are on another node; or there are none
	want              string // the failure that audit then reports; "" for none
}

// fields returns the fields that kube-proxy reads beside ports and endpoints.
func fields() map[string]field {
	const wide, narrow = "198.51.100.0/24", "203.0.112.0/21"
	balancer := func(policy string, ranges ...string) object {
		return object{"type": "LoadBalancer", "externalTrafficPolicy": policy, "loadBalancerSourceRanges": ranges}
	}
	nodePort := func(policy string) object { return object{"type": "NodePort", "externalTrafficPolicy": policy} }
	sticky := func(seconds int) object {
		return object{"sessionAffinity": "ClientIP", "sessionAffinityConfig": object{"clientIP": object{"timeoutSeconds": seconds}}}
	}
	external := func(ips ...string) object { return object{"externalIPs": append([]string{}, ips...)} }
	at := func(ips ...string) (list []object) {
		for _, ip := range ips {
			list = append(list, object{"ip": ip})
		}
		return append(list, object{"ip": strings.Replace(ips[0], "192.0.2", "198.18.0", 1), "ipMode": "Proxy"}) // kube-proxy ignores it
	}
	return map[string]field{
		"kept": {spec: balancer("Local", wide, narrow), ingress: at("192.0.2.1"), later: object{"publishNotReadyAddresses": true}},
		"vip": {spec: balancer("Cluster"), ingress: at("192.0.2.2"), ingress2: at("192.0.2.2", "192.0.2.3"),
			want: "address 192.0.2.3, port 80: an address of its load balancer in the API"},
		"vip-none": {spec: balancer("Local"), ingress: at("192.0.2.4"), ingress2: at("192.0.2.5"), empty: true,
			want: "address 192.0.2.4, port 80: not an address of the Service"},
		"external-more": {spec: external("203.0.113.1"), later: external("203.0.113.1", "203.0.113.2"),
			want: "address 203.0.113.2, port 80: an external address in the API"},
		"external-less": {spec: external("203.0.113.3"), later: external(),
			want: "address 203.0.113.3, port 80: not an address of the Service"},
		"sticky": {spec: sticky(77), later: sticky(300), want: "sessionAffinity: ClientIP (300 s) in the API; ClientIP (77 s) on this node"},
		"to-local": {spec: nodePort("Cluster"), later: nodePort("Local"),
			want: "externalTrafficPolicy: Local in the API; Cluster on this node"},
		"to-local-none": {spec: nodePort("Cluster"), later: nodePort("Local"), elsewhere: true,
			want: "externalTrafficPolicy: Local in the API"},
		"to-cluster": {spec: nodePort("Local"), later: nodePort("Cluster"),
			want: "externalTrafficPolicy: Cluster in the API; Local on this node"},
		"to-cluster-none": {spec: nodePort("Local"), later: nodePort("Cluster"), elsewhere: true,
			want: "externalTrafficPolicy: Cluster in the API"},
		"ranges-less": {spec: balancer("Cluster", wide, narrow), later: balancer("Cluster", wide), ingress: at("192.0.2.6"),
			want: "198.51.100.0/24 in the API; 198.51.100.0/24, 203.0.112.0/21 on this node"},
		"ranges-none": {spec: balancer("Cluster", narrow), later: balancer("Cluster"), ingress: at("192.0.2.7"),
			want: "loadBalancerSourceRanges for 192.0.2.7: all clients in the API; 203.0.112.0/21 on this node"},
		"ranges-now": {spec: balancer("Cluster"), later: balancer("Cluster", narrow), ingress: at("192.0.2.8"),
			want: "in the API; all clients on this node"},
		// The range contains the node's own address, so kube-proxy also accepts the load balancer's address.
		"ranges-own": {spec: balancer("Cluster", network+".0/24"), ingress: at("192.0.2.9")},
	}
}

// TestFields changes one field of each of many Services while kube-proxy is cut off. audit must report exactly those fields. RECORD
// names a directory for kube-proxy's rules before the change, and for the API objects.
func TestFields(t *testing.T) {
	c, binary := startPlane(t, Newest, append(ForRules(), "kubectl")), buildNodegate(t)
	all := map[string]*Service{}
	for name := range fields() {
		s, err := c.AddService(t.Context(), name, "TCP")
		require.NoError(t, err)
		all[name] = s
	}
	for _, b := range []Backend{IptablesLegacy, NFTables} {
		t.Run(string(b), func(t *testing.T) {
			n := addNode(t, c, b)
			for name, f := range fields() {
				s := all[name]
				if s.Node = n.Name; f.elsewhere {
					s.Node = "node-elsewhere"
				}
				if !f.empty && len(s.Ready) == 0 {
					s.replaceEndpoints()
				}
				require.NoError(t, s.Update(t.Context()))
				require.NoError(t, s.Patch(t.Context(), f.spec, f.ingress))
			}
			untilAudit(t, n, binary, "before any change", "pass")
			n.recordNode(t, os.Getenv("RECORD"))
			require.NoError(t, n.CutProxy(t.Context()))
			for name, f := range fields() {
				require.NoError(t, all[name].Patch(t.Context(), f.later, f.ingress2))
			}
			a := untilAudit(t, n, binary, "cut off", "fail")
			for name, f := range fields() {
				said := failureEvidence(a, "default/"+name+" ")
				assert.True(t, (f.want != "" || said == "") && strings.Contains(said, f.want), "%s: audit reports %q, want %q", name, said, f.want)
			}
			t.Log(a.Said())
			require.NoError(t, n.MendProxy(t.Context()))
			untilAudit(t, n, binary, "and back", "pass")
		})
	}
}

// failureEvidence returns the evidence of an audit's failures about one subject.
func failureEvidence(a Audit, subject string) string {
	var list []string
	for _, r := range a.Results {
		for _, e := range r.Evidence {
			if r.Verdict == "fail" && strings.HasPrefix(e.Source+" ", subject) {
				list = append(list, r.Name+": "+e.Text)
			}
		}
	}
	return strings.Join(list, "; ")
}

// recordNode writes kube-proxy's rules and its input to a directory, unless dir is "".
func (n *ProxyNode) recordNode(t *testing.T, dir string) {
	t.Helper()
	if dir == "" {
		return
	}
	rules := []string{"iptables-legacy-save"}
	if n.Backend == NFTables {
		rules = strings.Fields("nft -j list table ip kube-proxy")
	}
	get := func(what string) []string {
		return []string{n.plane.programPath("kubectl"), "--kubeconfig", n.plane.Kubeconfig, "get", what, "-o", "json"}
	}
	for name, command := range map[string][]string{
		string(n.Backend) + ".rules": rules, string(n.Backend) + "-services.json": get("services"),
		string(n.Backend) + "-slices.json": get("endpointslices"),
	} {
		text, err := n.Output(t.Context(), command[0], command[1:]...)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
}
