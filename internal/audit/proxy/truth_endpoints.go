package proxy

import "slices"

// difference compares endpoints of the rules with those that kube-proxy should compute from the API's: CategorizeEndpoints of
// pkg/proxy/topology.go. The node's name may be unknown.
type difference struct {
	opts           *Options
	api            []apiEndpoint
	known          map[string]bool // all endpoints that kube-proxy could use
	unsure         map[string]bool // endpoints about which kube-proxy may have other data
	stale, missing map[string]bool // over both policies
	chance         float64         // probability that a connection goes to a stale endpoint
	rules          map[string]bool // the addresses in the rules
}

func (c *comparison) newDifference(s *Service) *difference {
	d := &difference{opts: c.opts, known: map[string]bool{}, unsure: map[string]bool{}, rules: map[string]bool{},
		stale: map[string]bool{}, missing: map[string]bool{}, api: distinctEndpoints(c.opts.Endpoints.of(keyOf(s)))}
	for i := range d.api {
		if ep := &d.api[i]; ep.ready || ep.drains() {
			d.known[ep.address] = true
			if ep.unsure {
				d.unsure[ep.address] = true
			}
		}
	}
	return d
}

// drains reports whether an endpoint serves until it ends. Without ready endpoints, kube-proxy uses these.
func (e *apiEndpoint) drains() bool { return !e.ready && e.serving && e.terminating }

// compareEndpoints compares the endpoints of one Service, for each chain by the chain's policy.
func (c *comparison) compareEndpoints(s *Service) {
	if c.opts.Endpoints == nil {
		return
	}
	if c.rep.ipvs != nil {
		c.serverEndpoints(s)
		return
	}
	d := c.newDifference(s)
	if !s.InternalLocal || s.NodePort != 0 || len(s.ExternalIPs)+len(s.LoadBalancerIPs) > 0 {
		d.compareCluster(s.Endpoints)
	}
	if s.InternalLocal || s.ExternalLocal {
		d.compareLocal(s.LocalEndpoints)
	}
	lost := c.lostHairpins(s, d)
	if !c.report(s, d, "") && len(lost) > 0 {
		c.add(damaged, s, "endpoints of this node that set hairpin-connections lacks: %s; "+
			"they cannot connect to themselves through the Service", formatSet(lost))
	}
}

// lostHairpins returns the endpoints of this node that the set hairpin-connections lacks (from 1.36, syncProxyRules of
// pkg/proxy/nftables).
func (c *comparison) lostHairpins(s *Service, d *difference) map[string]bool {
	set, lost := c.rep.hairpins[s.Family], map[string]bool{}
	if set == nil || c.opts.NodeName == "" {
		return nil
	}
	for _, ep := range d.api {
		connection := s.Protocol + " " + ep.address
		at := func(e Endpoint) bool { return e.Address == ep.address }
		if ep.node == c.opts.NodeName && !d.unsure[ep.address] && !set[connection] && !c.hairpins[s.Family+connection] &&
			(slices.ContainsFunc(s.Endpoints, at) || slices.ContainsFunc(s.LocalEndpoints, at)) {
			lost[ep.address], c.hairpins[s.Family+connection] = true, true
		}
	}
	return lost
}

// usable returns the ready endpoints among those that in selects or, without any, the draining ones. nil selects all.
func (d *difference) usable(in func(*apiEndpoint) bool) map[string]bool {
	set := make(map[string]bool, len(d.known))
	for _, draining := range []bool{false, true} {
		for i := range d.api {
			if ep := &d.api[i]; (in == nil || in(ep)) && (ep.ready && !draining || draining && ep.drains()) {
				set[ep.address] = true
			}
		}
		if len(set) > 0 {
			break
		}
	}
	return set
}

// compareCluster compares the endpoints for policy Cluster. If each ready endpoint has hints, kube-proxy may use only some of them.
func (d *difference) compareCluster(have []Endpoint) {
	all := d.usable(nil)
	wanted := all
	if len(have) > 0 && !slices.ContainsFunc(d.api, func(ep apiEndpoint) bool { return ep.ready && !ep.hinted }) &&
		slices.ContainsFunc(d.api, func(ep apiEndpoint) bool { return ep.ready }) {
		wanted = nil
	}
	d.compare(have, all, wanted)
}

// local returns this node's endpoints, for policy Local.
func (d *difference) local() map[string]bool {
	return d.usable(func(ep *apiEndpoint) bool { return ep.node == d.opts.NodeName })
}

func (d *difference) compareLocal(have []Endpoint) {
	if d.opts.NodeName == "" {
		d.compare(have, d.known, nil)
	} else {
		local := d.local()
		d.compare(have, local, local)
	}
}

// compare records endpoints that are not allowed and wanted endpoints that are missing. Uncertainty
// about one endpoint affects the others.
func (d *difference) compare(got []Endpoint, allowed, wanted map[string]bool) {
	if len(d.unsure) > 0 {
		allowed = d.known
	}
	have := make(map[string]bool, len(got))
	for _, ep := range got {
		d.rules[ep.Address] = true
		if have[ep.Address] = true; ep.Address != "" && !allowed[ep.Address] { // "": it could not be read
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

// report reports stale and missing endpoints, in IPVS mode with their place if that is not the ClusterIP: "at 192.0.2.1:80, ".
func (c *comparison) report(s *Service, d *difference, at string) (differs bool) {
	more := ""
	if len(d.missing) > 0 {
		more = "; missing endpoints from the API: " + formatSet(d.missing)
	}
	switch {
	case len(d.stale) > 0:
		c.add("kubeproxy.truth.endpoint-stale", s, "%s%d of %d endpoints in the rules are not in the API or not ready: %s; they get %.1f %% of "+
			"new connections%s", at, len(d.stale), len(d.rules), formatSet(d.stale), 100*min(d.chance, 1), more)
	case len(d.missing) > 0:
		c.add("kubeproxy.truth.endpoint-missing", s,
			"%sendpoints in the API but not in the rules: %s; the rules have %d endpoints", at, formatSet(d.missing), len(d.rules))
	}
	return len(d.stale)+len(d.missing) > 0
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
		if ep.ready && !k.ready || ep.drains() && !k.ready {
			kept[i] = ep
		}
		kept[i].unsure = unsure
	}
	return kept
}
