//go:build cluster

package cluster

import (
	"testing"
	"time"
)

// TestFirstWriting starts kube-proxy beside thousands of endpoints. iptables-restore of the nft variant writes them as a whole, and computes
// long before; until then the tables have kube-proxy's canaries and nothing else. Nobody says that the rules were deleted: neither audit,
// whatever time it has, nor watch. When they are written, all pass.
func TestFirstWriting(t *testing.T) {
	c, binary := plane(t, Newest, ForRules()), nodegate(t)
	if err := (&Churn{Services: 200, Endpoints: 100}).Prepare(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	n := addNode(t, c, IptablesNFT)
	k := keep(t, n, binary, "30s")
	var during Tally
	began := time.Now()
	within(t, 10*time.Minute, "verdict pass of watch", func() (bool, error) {
		if writes(t, n) {
			a, err := n.Audit(t.Context(), binary, "--settle", "3s", "--timeout", "9s")
			if err != nil {
				return false, Final(err)
			}
			if writes(t, n) { // all the time: a restore is one process
				during.Add(a)
			}
		}
		return k.passes()
	})
	t.Logf("%.0f s until watch passes; audits meanwhile: %s", time.Since(began).Seconds(), &during)
	if during.Findings["kubeproxy.table.unwritten"] == 0 {
		t.Error("no audit ended while kube-proxy wrote: nothing was tested")
	}
	for name, text := range during.Accused {
		t.Errorf("a false %s:\n%s", name, text)
	}
	untilAudit(t, n, binary, "when all is written", "pass")
}

// writes reports whether iptables-restore runs on the node.
func writes(t *testing.T, n *ProxyNode) bool {
	t.Helper()
	return n.Shell(t.Context(), "grep -qs 'tables-restor[e]' /proc/[0-9]*/cmdline") == nil
}
