package proxyrules

import (
	"fmt"
	"slices"
)

// expectation is what kube-proxy should have made of the endpoints of one Service port: CategorizeEndpoints of
// pkg/proxy/topology.go, for a node whose name and zone may be unknown.
type expectation struct {
	cluster      map[string]bool // endpoints for policy Cluster
	zoned        map[string]bool // the same by hints for zones alone: until 1.33, and where PreferSameTrafficDistribution is off
	ready        map[string]bool // without hints: older kube-proxies, and Services that do not ask for them
	local        map[string]bool // endpoints for policy Local; nil when the node is unknown
	known        map[string]bool // any that kube-proxy could use
	unsure       map[string]bool // those of which it may know something else
	hintsUnknown bool            // hints exist, but not which apply here
	fallback     bool            // nothing is ready: cluster has endpoints that still serve while they terminate
}

func expect(endpoints []apiEndpoint, node, zone string) expectation {
	endpoints = distinct(endpoints)
	e := expectation{cluster: map[string]bool{}, zoned: map[string]bool{}, ready: map[string]bool{}, known: map[string]bool{},
		unsure: map[string]bool{}}
	draining := map[string]bool{}
	for _, ep := range endpoints {
		switch {
		case ep.ready:
			e.ready[ep.address] = true
		case ep.serving && ep.terminating:
			draining[ep.address] = true
		default:
			continue
		}
		e.known[ep.address] = true
		if ep.unsure {
			e.unsure[ep.address] = true
		}
	}
	hinted, inZone := e.hints(endpoints, node, zone)
	for _, ep := range endpoints {
		if ep.ready && hinted(ep) {
			e.cluster[ep.address] = true
		}
		if ep.ready && inZone(ep) {
			e.zoned[ep.address] = true
		}
	}
	if len(e.cluster) == 0 {
		e.cluster, e.fallback = draining, len(draining) > 0
	}
	if node != "" {
		e.local = local(endpoints, node)
	}
	return e
}

// hints returns which endpoints this node should use, and which by hints for zones alone. Hints count only if every ready endpoint has
// one and one names this node or zone; a node's hint counts before a zone's.
func (e *expectation) hints(endpoints []apiEndpoint, node, zone string) (hinted, inZone func(apiEndpoint) bool) {
	allNodes, allZones, forNode, forZone := true, true, false, false
	for _, ep := range endpoints {
		if ep.ready {
			allNodes = allNodes && len(ep.nodes) > 0
			allZones = allZones && len(ep.zones) > 0
			forNode = forNode || slices.Contains(ep.nodes, node)
			forZone = forZone || slices.Contains(ep.zones, zone)
		}
	}
	ready := len(e.ready) > 0
	e.hintsUnknown = ready && (allNodes && node == "" || allZones && zone == "")
	inZone = func(apiEndpoint) bool { return true }
	if ready && allZones && forZone {
		inZone = func(ep apiEndpoint) bool { return slices.Contains(ep.zones, zone) }
	}
	if ready && allNodes && forNode {
		return func(ep apiEndpoint) bool { return slices.Contains(ep.nodes, node) }, inZone
	}
	return inZone, inZone
}

// local returns this node's ready endpoints or, if there are none, those that still serve while they terminate.
func local(endpoints []apiEndpoint, node string) map[string]bool {
	ready, draining := map[string]bool{}, map[string]bool{}
	for _, ep := range endpoints {
		switch {
		case ep.node != node:
		case ep.ready:
			ready[ep.address] = true
		case ep.serving && ep.terminating:
			draining[ep.address] = true
		}
	}
	if len(ready) > 0 {
		return ready
	}
	return draining
}

// distinct keeps one of the endpoints with the same address, the ready one first: while it moves between slices an endpoint may be in two,
// and two Pods with the node's address share one while one replaces the other. Which of them kube-proxy takes depends on its version and
// on chance (addEndpoints of pkg/proxy/endpointslicecache.go).
func distinct(endpoints []apiEndpoint) []apiEndpoint {
	at := make(map[string]int, len(endpoints))
	kept := make([]apiEndpoint, 0, len(endpoints))
	for _, ep := range endpoints {
		i, again := at[ep.address]
		if !again {
			at[ep.address] = len(kept)
			kept = append(kept, ep)
			continue
		}
		k := kept[i]
		unsure := k.unsure || ep.unsure || ep.ready != k.ready || ep.serving != k.serving || ep.terminating != k.terminating || ep.node != k.node
		if ep.ready && !k.ready || ep.serving && ep.terminating && !k.ready {
			kept[i] = ep
		}
		kept[i].unsure = unsure
	}
	return kept
}

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
