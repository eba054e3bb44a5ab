package kubeproxy

import (
	"net/netip"
	"slices"
)

// StaleIn returns the Service whose rules still send to an endpoint that the API
// has no longer; "" where there is none.
func (r *Report) StaleIn(endpoint netip.AddrPort, api *Endpoints) string {
	for _, s := range r.Services {
		if !slices.Contains(s.Findings, "kubeproxy.truth.endpoint-stale") && !slices.Contains(s.Findings, "kubeproxy.truth.service-stale") {
			continue
		}
		for _, e := range slices.Concat(s.Endpoints, s.LocalEndpoints) {
			if e.Address == endpoint.String() && !api.Has(endpoint.String()) {
				return s.Name
			}
		}
	}
	return ""
}
