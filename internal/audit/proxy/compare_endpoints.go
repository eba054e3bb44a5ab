package proxy

import (
	"fmt"
	"slices"
)

// expectation is the result that kube-proxy should compute from the endpoints of one Service port:
// CategorizeEndpoints of pkg/proxy/topology.go. The node's name and zone may be unknown.
type expectation struct {
	cluster      map[string]bool // endpoints for policy Cluster
	zoned        map[string]bool // the same by zone hints alone: until 1.33, and if PreferSameTrafficDistribution is off
	ready        map[string]bool // without hints: for older kube-proxies, and for Services that do not use them
	local        map[string]bool // endpoints for policy Local; nil if the node is unknown
	known        map[string]bool // all endpoints that kube-proxy could use
	unsure       map[string]bool // endpoints about which kube-proxy may have other data
	hintsUnknown bool            // there are hints, but it is unknown which apply to this node
	fallback     bool            // no endpoint is ready: cluster contains terminating endpoints that still serve
}

func expectEndpoints(endpoints []apiEndpoint, node, zone string) expectation {
	endpoints = distinctEndpoints(endpoints)
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
	hinted, inZone := e.hintFilters(endpoints, node, zone)
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
		e.local = localEndpoints(endpoints, node)
	}
	return e
}

// hintFilters returns two filters: the endpoints that this node should use, and the endpoints by zone hints alone. Hints count only if
// every ready endpoint has one and one names this node or zone. A node hint takes precedence over a zone hint.
func (e *expectation) hintFilters(endpoints []apiEndpoint, node, zone string) (hinted, inZone func(apiEndpoint) bool) {
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

// localEndpoints returns this node's ready endpoints or, without any, its terminating endpoints that still serve.
func localEndpoints(endpoints []apiEndpoint, node string) map[string]bool {
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

// distinctEndpoints keeps one endpoint for each address, ready ones first. An endpoint may be in two slices while it moves between them,
// and two Pods with the node's address share an address while one replaces the other. Which of them kube-proxy uses depends on its
// version and on chance (addEndpoints of pkg/proxy/endpointslicecache.go).
func distinctEndpoints(endpoints []apiEndpoint) []apiEndpoint {
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

// difference collects surplus and missing endpoints, over both policies.
type difference struct {
	*expectation
	stale, missing map[string]bool
	hairpins       map[string]bool // endpoints of this node whose connections to themselves are not masqueraded
	chance         float64         // probability that a connection goes to a stale endpoint
	total          int
	at             string // in IPVS mode the address, if it is not the ClusterIP: "at 192.0.2.1:80, "
}

func newDifference(e *expectation) difference {
	return difference{expectation: e, stale: map[string]bool{}, missing: map[string]bool{}, hairpins: map[string]bool{}}
}

// findHairpins records the endpoints of this node that the set hairpin-connections lacks (from 1.36, syncProxyRules of
// pkg/proxy/nftables).
func (d *difference) findHairpins(c *comparison, s *Service, api []apiEndpoint) {
	set := c.rep.all().hairpins[s.Family]
	if set == nil || c.opts.NodeName == "" {
		return
	}
	local := map[string]bool{}
	for _, ep := range api {
		local[ep.address] = ep.node == c.opts.NodeName && !d.unsure[ep.address]
	}
	for _, ep := range slices.Concat(s.Endpoints, s.LocalEndpoints) {
		connection := s.Protocol + " " + ep.Address
		if local[ep.Address] && !set[connection] && !c.hairpins[s.Family+connection] {
			d.hairpins[ep.Address], c.hairpins[s.Family+connection] = true, true
		}
	}
}

func (d *difference) compareCluster(s *Service, v VersionRange) {
	switch {
	case d.fallback && v.Min < 26 && len(s.Endpoints) == 0:
		// before 1.26, policy Cluster does not fall back to terminating endpoints
	case !d.fallback && (same(s.Endpoints, d.ready) || same(s.Endpoints, d.zoned)):
		// without hints, or with a kube-proxy that ignores them
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
		// before 1.26, policy Local does not fall back either
	default:
		d.compare(s.LocalEndpoints, d.local, d.local)
	}
}

// compare records endpoints that are not allowed and wanted endpoints that are missing. Uncertainty
// about one endpoint affects the others.
func (d *difference) compare(got []Endpoint, allowed, wanted map[string]bool) {
	if len(d.unsure) > 0 {
		allowed = d.known
	}
	have := make(map[string]bool, len(got))
	d.total += len(got)
	for _, ep := range got {
		if ep.Address == "" {
			continue // its address could not be read
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
		msg := fmt.Sprintf("%s%d of %d endpoints in the rules are not in the API or not ready: %s; they get %.1f %% of "+
			"new connections", d.at, len(d.stale), d.total, formatSet(d.stale), 100*min(d.chance, 1))
		if len(d.missing) > 0 {
			msg += fmt.Sprintf("; missing endpoints from the API: %s", formatSet(d.missing))
		}
		c.addFinding("kubeproxy.truth.endpoint-stale", s, "%s", msg)
	case len(d.missing) > 0:
		c.addFinding("kubeproxy.truth.endpoint-missing", s,
			"%sendpoints in the API but not in the rules: %s; the rules have %d endpoints", d.at, formatSet(d.missing), d.total)
	case len(d.hairpins) > 0:
		c.stale[keyOf(s)] = true
		c.addFinding(damaged, s, "endpoints of this node that set hairpin-connections lacks: %s; "+
			"they cannot connect to themselves through the Service", formatSet(d.hairpins))
	}
}
