package proxyrules

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
	unsure               bool // kube-proxy uses it, or does not
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
	_, others := s.Metadata.Labels[labelProxy]
	svc.ignored = svc.ignored || headless || others
	for _, p := range s.Ports {
		if p.Port == nil || *p.Port == 0 || headless {
			continue // kube-proxy does not see these
		}
		key := apiPort{text(p.Name, ""), strings.ToLower(text(p.Protocol, "TCP")), family}
		for _, e := range s.Endpoints {
			if len(e.Addresses) == 0 {
				continue
			}
			ep := apiEndpoint{
				address:     net.JoinHostPort(canonical(e.Addresses[0]), strconv.Itoa(int(*p.Port))),
				node:        text(e.NodeName, ""),
				ready:       yes(e.Conditions.Ready, true),
				serving:     yes(e.Conditions.Serving, true),
				terminating: yes(e.Conditions.Terminating, false),
				unsure:      others, // until 1.35 kube-proxy passes over them
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

// canonical spells an address as the kernel does. The API keeps it as it was written; in IPv4 with leading zeros, which kube-proxy
// passes over.
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
