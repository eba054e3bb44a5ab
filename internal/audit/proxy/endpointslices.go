package proxy

import (
	"cmp"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"nodegate/internal/input"
	"nodegate/internal/ruleset"
)

// Endpoints holds all EndpointSlices of the API.
type Endpoints struct {
	Slices   int    // number of slices read
	Version  string // resourceVersion of the list
	services map[string]*apiEndpoints
}

// apiEndpoints holds the endpoints of one Service.
type apiEndpoints struct {
	managed bool // from the EndpointSlice controller, which copies the Service's labels to its slices
	ignored bool // headless, or another proxy's
	ports   map[apiPort][]apiEndpoint
}

type apiPort struct{ name, proto, family string }

type apiEndpoint struct {
	address              string // ip:port
	node                 string
	zones, nodes         []string // from hints
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
	labelService   = "kubernetes.io/service-name"
	labelHeadless  = "service.kubernetes.io/headless"
	labelProxy     = "service.kubernetes.io/service-proxy-name"
	labelManagedBy = "endpointslice.kubernetes.io/managed-by"
)

// maxPairs is ten times the number of endpoints in the largest known cluster, with one port each.
const maxPairs = 500_000

// LoadEndpointSlices reads a list of EndpointSlices in the format of `kubectl get endpointslices -A
// -o json` or of the API. It skips items of other kinds. Every error is an input.Error.
func LoadEndpointSlices(r io.Reader) (*Endpoints, error) {
	return loadEndpointSlices(r, func(*endpointSlice) {})
}

// loadEndpointSlices also passes each slice to keep.
func loadEndpointSlices(r io.Reader, keep func(*endpointSlice)) (*Endpoints, error) {
	all := &Endpoints{services: map[string]*apiEndpoints{}}
	pairs := 0
	version, err := loadItems(r, "EndpointSlice", func(s *endpointSlice) bool {
		return s.Kind == "EndpointSlice" || s.Kind == "" && s.AddressType != ""
	}, func(s *endpointSlice) error {
		// Each endpoint is stored once for each port, so a small slice can expand to millions.
		if pairs += len(s.Ports) * len(s.Endpoints); pairs > maxPairs {
			return input.Unknown(0, "more than %d endpoints (counted once for each port)", maxPairs)
		}
		all.add(s)
		keep(s)
		return nil
	})
	if err != nil {
		return nil, err
	}
	all.Version = version
	return all, nil
}

// loadItems passes the items of a list to add, without those of other kinds, and returns the list's version.
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

// service returns the slice's Service as ns/name, or "".
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
		return // kube-proxy skips these too
	}
	svc := all.services[name]
	if svc == nil {
		svc = &apiEndpoints{ports: map[apiPort][]apiEndpoint{}}
		all.services[name] = svc
	}
	svc.managed = svc.managed || s.Metadata.Labels[labelManagedBy] == "endpointslice-controller.k8s.io"
	_, headless := s.Metadata.Labels[labelHeadless]
	_, others := s.Metadata.Labels[labelProxy]
	svc.ignored = svc.ignored || headless || others
	for _, p := range s.Ports {
		if p.Port == nil || *p.Port == 0 || headless {
			continue // kube-proxy does not see these
		}
		key := apiPort{textOr(p.Name, ""), strings.ToLower(textOr(p.Protocol, "TCP")), family}
		for _, e := range s.Endpoints {
			if len(e.Addresses) == 0 {
				continue
			}
			ep := apiEndpoint{
				address:     net.JoinHostPort(canonical(e.Addresses[0]), strconv.Itoa(int(*p.Port))),
				node:        textOr(e.NodeName, ""),
				ready:       boolOr(e.Conditions.Ready, true),
				serving:     boolOr(e.Conditions.Serving, true),
				terminating: boolOr(e.Conditions.Terminating, false),
				unsure:      others, // until 1.35 kube-proxy skips them
			}
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

// of returns the endpoints of a Service port, ready or not.
func (e *Endpoints) of(key apiServiceKey) []apiEndpoint {
	_, _, port := SplitServicePort(key.name)
	if svc := e.services[key.service()]; svc != nil {
		return svc.ports[apiPort{port, key.proto, key.family}]
	}
	return nil
}

// Has reports whether any Service has a ready endpoint at that address, written as `ip:port` or `[ip]:port`.
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

func textOr(s *string, otherwise string) string {
	if s == nil {
		return otherwise
	}
	return *s
}

func boolOr(b *bool, otherwise bool) bool {
	if b == nil {
		return otherwise
	}
	return *b
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
