package proxyrules

import (
	"io"
	"net"
	"slices"
	"strconv"
	"strings"

	"nodegate/internal/input"
	"nodegate/internal/ruleset"
)

// Endpoints is all EndpointSlices of the API.
type Endpoints struct {
	Slices   int    // read
	Version  string // the list's resourceVersion
	services map[string]*apiEndpoints
}

// apiEndpoints are the endpoints of one Service.
type apiEndpoints struct {
	managed bool // the EndpointSlice controller's own: labels of the Service are copied to its slices
	ignored bool // headless, or another proxy's
	ports   map[apiPort][]apiEndpoint
}

type apiPort struct{ name, proto, family string }

type apiEndpoint struct {
	address              string // ip:port
	node                 string
	zones, nodes         []string // hints
	ready                bool
	serving, terminating bool
}

// endpointSlice is the part of a discovery.k8s.io/v1 EndpointSlice that kube-proxy looks at.
type endpointSlice struct {
	Kind        string
	AddressType string
	Metadata    struct {
		Namespace, Name string
		Labels          map[string]string
	}
	Endpoints []struct {
		Addresses  []string
		Conditions struct{ Ready, Serving, Terminating *bool }
		NodeName   *string
		Hints      *struct {
			ForZones, ForNodes []struct{ Name string }
		}
	}
	Ports []struct {
		Name, Protocol *string
		Port           *int32
	}
}

const (
	labelService   = "kubernetes.io/service-name"
	labelHeadless  = "service.kubernetes.io/headless"
	labelProxy     = "service.kubernetes.io/service-proxy-name"
	labelManagedBy = "endpointslice.kubernetes.io/managed-by"
)

// maxPairs is ten times the endpoints of the largest cluster known, with a port each.
const maxPairs = 500_000

// LoadEndpointSlices reads a list of EndpointSlices as `kubectl get endpointslices -A -o json` or the API prints it. Items of
// other kinds are passed over. It fails with an input.Error.
func LoadEndpointSlices(r io.Reader) (*Endpoints, error) {
	return loadEndpointSlices(r, func(*endpointSlice) {})
}

// loadEndpointSlices passes each slice to keep, too.
func loadEndpointSlices(r io.Reader, keep func(*endpointSlice)) (*Endpoints, error) {
	in := input.NewJSON(r)
	all := &Endpoints{services: map[string]*apiEndpoints{}}
	others, pairs := 0, 0
	err := in.Items("EndpointSlice", func() error {
		var s endpointSlice
		if err := in.Decode(&s); err != nil {
			return err
		}
		if s.Kind != "EndpointSlice" && (s.Kind != "" || s.AddressType == "") {
			others++
			return nil
		}
		// Each endpoint is kept once for each port: a small slice can make millions.
		if pairs += len(s.Ports) * len(s.Endpoints); pairs > maxPairs {
			return input.Unknown(0, "more than %d endpoints, each counted once for each of its ports", maxPairs)
		}
		all.add(&s)
		keep(&s)
		return nil
	})
	if err != nil {
		return nil, err
	}
	all.Version = in.Version
	if all.Slices == 0 && others > 0 {
		return nil, input.Unreadable(0, "no EndpointSlice among %d items", others)
	}
	return all, nil
}

// service returns the slice's Service, ns/name, "" where it has none.
func (s *endpointSlice) service() string {
	if name := s.Metadata.Labels[labelService]; name != "" {
		return s.Metadata.Namespace + "/" + name
	}
	return ""
}

func (all *Endpoints) add(s *endpointSlice) {
	all.Slices++
	name, family := s.service(), map[string]string{"IPv4": ruleset.IPv4, "IPv6": ruleset.IPv6}[s.AddressType]
	if name == "" || family == "" {
		return // kube-proxy passes over these too
	}
	svc := all.services[name]
	if svc == nil {
		svc = &apiEndpoints{ports: map[apiPort][]apiEndpoint{}}
		all.services[name] = svc
	}
	svc.managed = svc.managed || s.Metadata.Labels[labelManagedBy] == "endpointslice-controller.k8s.io"
	_, headless := s.Metadata.Labels[labelHeadless]
	svc.ignored = svc.ignored || headless || s.Metadata.Labels[labelProxy] != ""
	for _, p := range s.Ports {
		if p.Port == nil {
			continue
		}
		key := apiPort{text(p.Name, ""), strings.ToLower(text(p.Protocol, "TCP")), family}
		for _, e := range s.Endpoints {
			if len(e.Addresses) == 0 {
				continue
			}
			ep := apiEndpoint{
				address:     net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(*p.Port))),
				node:        text(e.NodeName, ""),
				ready:       yes(e.Conditions.Ready, true),
				terminating: yes(e.Conditions.Terminating, false),
			}
			ep.serving = yes(e.Conditions.Serving, ep.ready)
			if e.Hints != nil {
				for _, z := range e.Hints.ForZones {
					ep.zones = append(ep.zones, z.Name)
				}
				for _, n := range e.Hints.ForNodes {
					ep.nodes = append(ep.nodes, n.Name)
				}
			}
			svc.ports[key] = append(svc.ports[key], ep)
		}
	}
}

// Has reports whether any Service has a ready endpoint at that address, spelled `ip:port` or `[ip]:port`.
func (e *Endpoints) Has(address string) bool {
	for _, s := range e.services {
		for _, endpoints := range s.ports {
			for _, ep := range endpoints {
				if ep.address == address && ep.ready {
					return true
				}
			}
		}
	}
	return false
}

func text(s *string, otherwise string) string {
	if s == nil {
		return otherwise
	}
	return *s
}

func yes(b *bool, otherwise bool) bool {
	if b == nil {
		return otherwise
	}
	return *b
}

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
