package proxyrules

import "slices"

// expectation is what kube-proxy should have made of the endpoints of one Service port: CategorizeEndpoints of
// pkg/proxy/topology.go, for a node whose name and zone may be unknown.
type expectation struct {
	cluster      map[string]bool // endpoints for policy Cluster
	ready        map[string]bool // without hints: older kube-proxies, and Services that do not ask for them
	local        map[string]bool // endpoints for policy Local; nil when the node is unknown
	known        map[string]bool // any that kube-proxy could use
	hintsUnknown bool            // hints exist, but not which apply here
	fallback     bool            // nothing is ready: cluster has endpoints that still serve while they terminate
}

func expect(endpoints []apiEndpoint, node, zone string) expectation {
	endpoints = distinct(endpoints)
	e := expectation{cluster: map[string]bool{}, ready: map[string]bool{}, known: map[string]bool{}}
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
	}
	applies := e.hints(endpoints, node, zone)
	for _, ep := range endpoints {
		if ep.ready && applies(ep) {
			e.cluster[ep.address] = true
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

// hints returns which endpoints this node should use. Hints count only if every ready endpoint has one and one names this node
// or zone; a node's hint counts before a zone's.
func (e *expectation) hints(endpoints []apiEndpoint, node, zone string) func(apiEndpoint) bool {
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
	switch {
	case ready && allNodes && forNode:
		return func(ep apiEndpoint) bool { return slices.Contains(ep.nodes, node) }
	case ready && allZones && forZone:
		return func(ep apiEndpoint) bool { return slices.Contains(ep.zones, zone) }
	}
	return func(apiEndpoint) bool { return true }
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

// distinct keeps one of the endpoints with the same address: while it moves between slices an endpoint may be in two, and
// kube-proxy prefers the one that is ready, then the one that serves.
func distinct(endpoints []apiEndpoint) []apiEndpoint {
	at := make(map[string]int, len(endpoints))
	kept := make([]apiEndpoint, 0, len(endpoints))
	for _, ep := range endpoints {
		i, again := at[ep.address]
		switch {
		case !again:
			at[ep.address] = len(kept)
			kept = append(kept, ep)
		case ep.ready && !kept[i].ready, ep.serving && !kept[i].serving && !kept[i].ready:
			kept[i] = ep
		}
	}
	return kept
}
