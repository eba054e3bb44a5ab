//go:build cluster

package cluster

import (
	"testing"
	"time"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// TestFirstWriting starts kube-proxy with thousands of endpoints. iptables-restore of the nft variant computes for a long time and then
// writes everything at once. Until then the tables contain only kube-proxy's canaries. Neither audit, with any --timeout, nor watch may
// report deleted rules. Once the rules are written, both pass.
func TestFirstWriting(t *testing.T) {
	c, binary := startPlane(t, Newest, ForRules()), buildNodegate(t)
	require.NoError(t, (&Churn{Services: 200, Endpoints: 100}).Prepare(t.Context(), c))
	n := addNode(t, c, IptablesNFT)
	k := startKept(t, n, binary, "30s")
	var during Tally
	began := time.Now()
	waitWithin(t, 10*time.Minute, "verdict pass of watch", func() (bool, error) {
		if isRestoring(t, n) {
			a, err := n.Audit(t.Context(), binary, "--settle", "3s", "--timeout", "9s")
			if err != nil {
				return false, Final(err)
			}
			if isRestoring(t, n) { // a restore is one process for the whole time
				during.Add(a)
			}
		}
		return k.passes()
	})
	t.Logf("watch passes after %.0f s; audits before that: %s", time.Since(began).Seconds(), &during)
	assert.True(t, during.Findings["kubeproxy.table.unwritten"] != 0, "no audit ended during kube-proxy's first sync, so nothing was tested")
	for name, text := range during.Accused {
		t.Errorf("a false %s:\n%s", name, text)
	}
	untilAudit(t, n, binary, "when all is written", "pass")
}

// isRestoring reports whether iptables-restore runs on the node.
func isRestoring(t *testing.T, n *ProxyNode) bool {
	t.Helper()
	return n.Shell(t.Context(), "grep -qs 'tables-restor[e]' /proc/[0-9]*/cmdline") == nil
}
