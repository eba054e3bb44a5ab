package proxy

import (
	"net/netip"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/audit/path"
	"nodegate/internal/verdict"
)

// TestReachSource: a rule that certainly gives packets a source which is not an address of the node is a warning. Without the
// node's addresses it is not known.
func TestReachSource(t *testing.T) {
	own := func(a netip.Addr) path.Answer {
		if a.String() == "192.168.157.133" {
			return path.Yes
		}
		return path.No
	}
	const end = " gives them the source 10.1.2.3, which is not an address of this node: replies come back only if another program routes them here "
	for _, c := range []struct {
		rule, want string
		own        func(netip.Addr) path.Answer
	}{
		{"-A POSTROUTING -s 10.244.0.0/16 -j SNAT --to-source 10.1.2.3", "packets from Pods to other machines: chain POSTROUTING of table nat, line 92" + end + "(SNAT)", own},
		{"-A POSTROUTING -s 10.244.0.0/16 ! -d 10.244.0.0/16 -j SNAT --to-source 10.1.2.3 --random-fully",
			"packets from Pods to other machines: chain POSTROUTING of table nat, line 92" + end + "(SNAT)", own},
		{"-A POSTROUTING -p tcp -j SNAT --to-source 10.1.2.3", "packets from Pods with TCP, from the node with TCP to other machines: chain POSTROUTING of table nat, line 92" +
			end + "(SNAT)", own},
		{"-A POSTROUTING -s 10.244.0.0/16 -j SNAT --to-source 10.1.2.3", "", nil},
		{"-A POSTROUTING -s 10.244.0.0/16 -j SNAT --to-source 192.168.157.133", "", own},
		{"-A POSTROUTING -s 172.17.0.0/16 -j SNAT --to-source 10.1.2.3", "", own},
		{"-A POSTROUTING -s 10.244.0.0/16 -m set --match-set x dst -j SNAT --to-source 10.1.2.3", "", own},
		{"-A POSTROUTING -s 10.244.0.0/16 -j SNAT --to-source 10.1.2.3-10.1.2.9", "", own},
	} {
		sets := mustParse(t, editedSave(t, readFile(t, "flannel-docker.txt"), before("^-A POSTROUTING .*-j KUBE-POSTROUTING", c.rule)))
		opts := Options{Own: c.own}
		got := ""
		for _, f := range Judge(sets, opts).Findings {
			if got += f.Message; f.Name != "kubeproxy.way.source" || f.Verdict != verdict.Warn || !strings.HasPrefix(f.Remedy, "unless another program routes") {
				t.Errorf("%s: %+v", c.rule, f)
			}
		}
		assert.Equal(t, got, c.want, "%s", c.rule)
		if _, found := Reach(sets, opts); (len(found) > 0) != (c.want != "") {
			t.Errorf("%s: the check finds %+v", c.rule, found)
		}
	}
}
