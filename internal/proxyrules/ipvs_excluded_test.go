package proxyrules

import (
	"net/netip"
	"testing"

	"nodegate/internal/ruleset"
)

// TestIPVSExcluded: somebody else's virtual server at a node port's number, in a range that kube-proxy is told to leave alone.
func TestIPVSExcluded(t *testing.T) {
	keepalived := "tcp +192.0.2.50:30080 rr 0 172.18.0.2:30080 172.18.0.3:30080\n" + ipvsNode
	sets := append(mustParse(t, ipvsSave), &ruleset.Set{IPVS: virtualServers(t, keepalived)})
	opts := Options{Services: services(t, ipvsServices), Endpoints: endpoints(t, ipvsSlices), NodeName: "a"}
	if rep := Judge(sets, opts); len(rep.Findings) == 0 {
		t.Error("without the range nothing is found: this tests nothing")
	}
	for ranges, want := range map[string]string{"192.0.2.48/28": "", "198.51.100.0/24": "more"} {
		opts.ExcludeCIDRs = func() []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(ranges)} }
		if rep := Judge(sets, opts); (len(rep.Findings) == 0) != (want == "") {
			t.Errorf("%s: %q", ranges, names(rep.Findings))
		}
	}
}
