package proxyrules

import "slices"

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
