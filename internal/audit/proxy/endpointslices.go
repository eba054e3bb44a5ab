package proxy

import (
	"cmp"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"nodegate/internal/input"
	"nodegate/internal/ruleset"
)

// Endpoints holds the EndpointSlices of the API.
type Endpoints struct {
	Slices   int                 // number of slices read
	Version  string              // resourceVersion of the list
	services map[string]sliceSet // by Service, ns/name
	owner    map[string]string   // the Service of a slice
}

// sliceSet holds the slices of one Service by ns/name. It does not change: a set with a change replaces it.
type sliceSet map[string]*endpointSlice

type apiEndpoint struct {
	address              string // ip:port
	node                 string
	hinted               bool // hints name the zones or nodes that may use it
	ready                bool
	serving, terminating bool
	unsure               bool // it is uncertain whether kube-proxy uses it
}

// endpointSlice contains the fields of a discovery.k8s.io/v1 EndpointSlice that kube-proxy reads.
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
	labelService  = "kubernetes.io/service-name"
	labelHeadless = "service.kubernetes.io/headless"
	labelProxy    = "service.kubernetes.io/service-proxy-name"
)

// maxPairs is ten times the number of endpoints in the largest known cluster, with one port each.
const maxPairs = 500_000

// LoadEndpointSlices reads a list of EndpointSlices in the format of `kubectl get endpointslices -A
// -o json` or of the API. It skips items of other kinds. Every error is an input.Error.
func LoadEndpointSlices(r io.Reader) (all *Endpoints, err error) {
	all = &Endpoints{services: map[string]sliceSet{}, owner: map[string]string{}}
	pairs := 0
	all.Version, err = loadItems(r, "EndpointSlice", func(s *endpointSlice) bool {
		return s.Kind == "EndpointSlice" || s.Kind == "" && s.AddressType != ""
	}, func(s *endpointSlice) error {
		// Each endpoint counts once for each port, so a small slice can expand to millions.
		if pairs += len(s.Ports) * len(s.Endpoints); pairs > maxPairs {
			return input.Unknown(0, "more than %d endpoints (counted once for each port)", maxPairs)
		}
		all.Slices++
		all.put(s, false)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// loadItems passes the items of a list to add, without other kinds, and returns the list's version.
func loadItems[T any](r io.Reader, kind string, is func(*T) bool, add func(*T) error) (version string, err error) {
	in := input.NewJSON(r)
	added, others := 0, 0
	err = in.Items(kind, func() error {
		var item T
		if err := in.Decode(&item); err != nil {
			return err
		}
		if !is(&item) {
			others++
			return nil
		}
		added++
		return add(&item)
	})
	if err == nil && added == 0 && others > 0 {
		err = input.Unreadable(0, "none of %d items has the kind %s", others, kind)
	}
	return in.Version, err
}

func (s *endpointSlice) id() string { return s.Metadata.Namespace + "/" + s.Metadata.Name }

// service returns the slice's Service as ns/name, or "" if kube-proxy skips the slice.
func (s *endpointSlice) service() string {
	if name := s.Metadata.Labels[labelService]; name != "" && s.family() != "" {
		return s.Metadata.Namespace + "/" + name
	}
	return ""
}

func (s *endpointSlice) family() string {
	switch s.AddressType {
	case "IPv4":
		return ruleset.IPv4
	case "IPv6":
		return ruleset.IPv6
	}
	return ""
}

// put replaces or deletes a slice.
func (all *Endpoints) put(s *endpointSlice, deleted bool) {
	id, name := s.id(), s.service()
	if was := all.owner[id]; was != "" {
		set := maps.Clone(all.services[was])
		delete(set, id)
		delete(all.owner, id)
		if all.services[was] = set; len(set) == 0 {
			delete(all.services, was)
		}
	}
	if !deleted && name != "" {
		set := sliceSet{id: s}
		maps.Copy(set, all.services[name])
		all.services[name], all.owner[id] = set, name
	}
}

// of returns the endpoints of a Service port, ready or not.
func (e *Endpoints) of(key apiServiceKey) (list []apiEndpoint) {
	e.services[key.service()].each(func(k apiServiceKey, ep apiEndpoint) {
		if k == key {
			list = append(list, ep)
		}
	}, key)
	return list
}

// each calls do for the endpoints of each port, or of one port.
func (set sliceSet) each(do func(apiServiceKey, apiEndpoint), only ...apiServiceKey) {
	for _, id := range slices.Sorted(maps.Keys(set)) {
		s := set[id]
		for _, p := range s.Ports {
			if p.Port == nil || *p.Port == 0 || has(s.Metadata.Labels, labelHeadless) {
				continue // kube-proxy does not see these
			}
			name := strings.TrimSuffix(s.service()+":"+valueOr(p.Name, ""), ":")
			key := apiServiceKey{name, strings.ToLower(valueOr(p.Protocol, "TCP")), s.family()}
			if len(only) > 0 && key != only[0] {
				continue
			}
			for i := range s.Endpoints {
				if len(s.Endpoints[i].Addresses) > 0 {
					do(key, s.endpoint(i, int(*p.Port)))
				}
			}
		}
	}
}

func (s *endpointSlice) endpoint(i, port int) apiEndpoint {
	e := &s.Endpoints[i]
	ep := apiEndpoint{
		address:     net.JoinHostPort(canonical(e.Addresses[0]), strconv.Itoa(port)),
		node:        valueOr(e.NodeName, ""),
		ready:       valueOr(e.Conditions.Ready, true),
		serving:     valueOr(e.Conditions.Serving, true),
		terminating: valueOr(e.Conditions.Terminating, false),
		unsure:      has(s.Metadata.Labels, labelProxy), // until 1.35 kube-proxy skips them
	}
	ep.hinted = e.Hints != nil && len(e.Hints.ForZones)+len(e.Hints.ForNodes) > 0
	return ep
}

func valueOr[T any](value *T, otherwise T) T {
	if value == nil {
		return otherwise
	}
	return *value
}

// canonical formats an address as the kernel does. The API stores addresses as they were written,
// IPv4 possibly with leading zeros, which kube-proxy ignores.
func canonical(address string) string {
	a, err := netip.ParseAddr(address)
	if err != nil {
		parts := strings.Split(address, ".")
		for i, p := range parts {
			parts[i] = cmp.Or(strings.TrimLeft(p, "0"), "0")
		}
		if a, err = netip.ParseAddr(strings.Join(parts, ".")); err != nil {
			return address
		}
	}
	return a.Unmap().String()
}
