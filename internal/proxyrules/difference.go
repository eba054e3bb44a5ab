package proxyrules

import "fmt"

// difference gathers what is too much and what is missing, over both policies.
type difference struct {
	*expectation
	stale, missing map[string]bool
	chance         float64 // of a connection to a stale endpoint
	total          int
	at             string // in IPVS mode, where not at the ClusterIP: "at 192.0.2.1:80, "
}

func newDifference(e *expectation) difference {
	return difference{expectation: e, stale: map[string]bool{}, missing: map[string]bool{}}
}

func (d *difference) compareCluster(s *Service, v VersionRange) {
	switch {
	case d.fallback && v.Min < 26 && len(s.Endpoints) == 0:
		// before 1.26 policy Cluster does not fall back to terminating endpoints
	case !d.fallback && (same(s.Endpoints, d.ready) || same(s.Endpoints, d.zoned)):
		// hints that this kube-proxy does not follow, or none
	case d.hintsUnknown && len(s.Endpoints) > 0:
		d.compare(s.Endpoints, d.ready, nil)
	default:
		d.compare(s.Endpoints, d.cluster, d.cluster)
	}
}

func (d *difference) compareLocal(s *Service, v VersionRange) {
	ready := false
	for address := range d.local {
		ready = ready || d.ready[address]
	}
	switch {
	case d.local == nil:
		d.compare(s.LocalEndpoints, d.known, nil)
	case !ready && v.Min < 26 && len(s.LocalEndpoints) == 0:
		// before 1.26 policy Local does not fall back either
	default:
		d.compare(s.LocalEndpoints, d.local, d.local)
	}
}

// compare notes endpoints that are not allowed, and wanted ones that are missing. What is not sure of one endpoint decides about the
// others.
func (d *difference) compare(got []Endpoint, allowed, wanted map[string]bool) {
	if len(d.unsure) > 0 {
		allowed = d.known
	}
	have := make(map[string]bool, len(got))
	d.total += len(got)
	for _, ep := range got {
		if ep.Address == "" {
			continue // could not be read
		}
		have[ep.Address] = true
		if !allowed[ep.Address] {
			d.stale[ep.Address] = true
			d.chance += ep.Chance
		}
	}
	for address := range wanted {
		if !have[address] && !d.unsure[address] {
			d.missing[address] = true
		}
	}
}

func same(got []Endpoint, want map[string]bool) bool {
	if len(got) != len(want) {
		return false
	}
	for _, ep := range got {
		if !want[ep.Address] {
			return false
		}
	}
	return true
}

func (d *difference) report(c *comparison, s *Service) {
	c.stale[keyOf(s)] = len(d.stale)+len(d.missing) > 0
	switch {
	case len(d.stale) > 0:
		msg := fmt.Sprintf("%s%d of %d endpoints that this node sends connections to are not in the API, or not ready: %s; they take %.1f %% of "+
			"new connections", d.at, len(d.stale), d.total, few(d.stale), 100*min(d.chance, 1))
		if len(d.missing) > 0 {
			msg += fmt.Sprintf("; these of the API get none: %s", few(d.missing))
		}
		c.find("kubeproxy.truth.endpoint-stale", s, "%s", msg)
	case len(d.missing) > 0:
		c.find("kubeproxy.truth.endpoint-missing", s,
			"%s%s: they are in the API, and not among the %d of this node's rules", d.at, few(d.missing), d.total)
	}
}
