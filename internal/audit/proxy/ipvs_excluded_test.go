package proxy

import (
	"net/netip"
	"strings"
	"testing"

	"nodegate/internal/ruleset"
)

// TestIPVSExcluded checks a virtual server of another program on a node port's number, in a range
// that kube-proxy is configured to ignore. kube-proxy's own virtual servers in that range are
// compared as usual.
func TestIPVSExcluded(t *testing.T) {
	keepalived := "tcp +192.0.2.50:30080 rr 0 172.18.0.2:30080 172.18.0.3:30080\n" + ipvsNode
	sets := append(mustParse(t, ipvsSave), &ruleset.Set{IPVS: virtualServers(t, keepalived)})
	opts := Options{Services: services(t, ipvsServices), Endpoints: endpoints(t, ipvsSlices), NodeName: "a"}
	if rep := Judge(sets, opts); len(rep.Findings) == 0 {
		t.Error("no finding without the range: this tests nothing")
	}
	for ranges, want := range map[string]string{"192.0.2.48/28": "", "198.51.100.0/24": "more"} {
		opts.ExcludeCIDRs = []netip.Prefix{netip.MustParsePrefix(ranges)}
		if rep := Judge(sets, opts); (len(rep.Findings) == 0) != (want == "") {
			t.Errorf("%s: %q", ranges, names(rep.Findings))
		}
	}
	const mine = "192.0.2.0/24 10.96.0.0/16 172.18.0.0/16 10.0.0.0/24" // its load balancers, its ClusterIPs and this node
	opts.ExcludeCIDRs = nil
	for _, p := range strings.Fields(mine) {
		opts.ExcludeCIDRs = append(opts.ExcludeCIDRs, netip.MustParsePrefix(p))
	}
	for _, c := range []struct{ old, now, want string }{
		{"", "", ""},
		{"+172.18.0.2:30080 rr 0 10.0.0.1", "+172.18.0.2:30080 rr 0 10.0.0.99", "kubeproxy.truth.endpoint-stale"},
		{"192.0.2.1:80 rr 0 10.0.0.1", "192.0.2.1:80 rr 0 10.0.0.99", "kubeproxy.truth.endpoint-stale"},
		{"tcp 10.96.0.12:80 rr 0\n", "", "kubeproxy.truth.service-missing"},
		{"tcp 10.96.0.12:80 rr 0\n", "tcp 10.96.0.12:80 rr 0\ntcp 10.96.0.99:80 rr 0 10.0.0.1:8080\n", ""}, // not deleted
	} {
		node := virtualServers(t, strings.Replace(ipvsNode, c.old, c.now, 1))
		wantOne(t, Judge(append(mustParse(t, ipvsSave), &ruleset.Set{IPVS: node}), opts), c.want)
	}
}
