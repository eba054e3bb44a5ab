//go:build cluster

package cluster

import (
	"net/http"
	"testing"
	"time"

	"nodegate/internal/require"
)

// TestLargeCluster: above 1000 endpoints, kube-proxy in iptables mode keeps unused chains until a sync that comes at least 30 s after its
// last cleanup. Services that lose all or only their local endpoints in the meantime, or are deleted, must not cause findings.
func TestLargeCluster(t *testing.T) {
	c, binary := startPlane(t, Newest, ForRules()), buildNodegate(t)
	require.NoError(t, (&Churn{Services: 12, Endpoints: 100}).Prepare(t.Context(), c))
	ranged := object{"type": "LoadBalancer", "externalTrafficPolicy": "Local", "loadBalancerSourceRanges": []string{"198.51.100.0/24"}}
	for _, b := range []Backend{IptablesNFT, IptablesLegacy} {
		t.Run(string(b), func(t *testing.T) {
			n := addNode(t, c, b)
			looks := n.addLocalService(t, "looks", object{}, "")
			emptied := []*Service{n.addLocalService(t, "emptied", object{}, ""), n.addLocalService(t, "emptied-ranged", ranged, "192.0.2.7")}
			deleted := n.addLocalService(t, "deleted", object{}, "")
			moved := []*Service{
				n.addLocalService(t, "moved", object{"type": "NodePort", "externalTrafficPolicy": "Local"}, ""),
				n.addLocalService(t, "moved-internal", object{"internalTrafficPolicy": "Local"}, ""), n.addLocalService(t, "moved-ranged", ranged, "192.0.2.8"),
			}
			untilAudit(t, n, binary, "before any change", "pass")
			const syncPeriod, minSyncPeriod = 30 * time.Second, time.Second
			time.Sleep(syncPeriod)
			looks.replaceEndpoints()
			require.NoError(t, looks.Update(t.Context()))
			time.Sleep(2 * minSyncPeriod)
			for _, s := range emptied {
				s.Ready = nil
			}
			for _, s := range moved {
				s.Node = "node-elsewhere"
			}
			for _, s := range append(emptied, moved...) {
				require.NoError(t, s.Update(t.Context()))
			}
			deleted.delete(t)
			time.Sleep(2 * minSyncPeriod)
			a, err := n.Audit(t.Context(), binary)
			require.NoError(t, err)
			if a.Verdict != "pass" {
				t.Error(a.Said())
			}
			for _, s := range append(append(emptied, moved...), looks) {
				s.delete(t)
			}
		})
	}
}

// addLocalService makes a Service with endpoints on the node, and with a load balancer's address if balancer is not empty.
func (n *ProxyNode) addLocalService(t *testing.T, name string, spec object, balancer string) *Service {
	t.Helper()
	s, err := n.plane.AddService(t.Context(), name, "TCP")
	require.NoError(t, err)
	var ingress []object
	if balancer != "" {
		ingress = []object{{"ip": balancer}}
	}
	require.NoError(t, s.Patch(t.Context(), spec, ingress))
	s.Node = n.Name
	s.replaceEndpoints()
	require.NoError(t, s.Update(t.Context()))
	return s
}

// delete deletes the Service and its EndpointSlice.
func (s *Service) delete(t *testing.T) {
	t.Helper()
	for _, path := range []string{"/api/v1/namespaces/default/services/" + s.Name, slicesPath + "/" + s.Name + "-1"} {
		require.NoError(t, s.plane.API.Do(t.Context(), http.MethodDelete, path, nil, nil))
	}
}
