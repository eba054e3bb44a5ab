package proxy

import (
	"cmp"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"nodegate/internal/ruleset"
)

// Services holds the Services of the API.
type Services struct {
	Count   int                       // number of Services read
	Version string                    // resourceVersion of the list
	objects map[string]*serviceObject // by ns/name
}

// apiServicePort is one port of a Service in one address family as the API wants it, without endpoints.
type apiServicePort struct {
	Service
	internal, affinity string            // internalTrafficPolicy, sessionAffinity; "" if the API does not report them
	external           string            // externalTrafficPolicy; "" also if there is no external traffic
	outside            map[string]string // addresses of the family other than the ClusterIP, with their descriptions; nil if unknown
	unsure             bool              // until 1.35 kube-proxy does not serve it
}

// Descriptions of addresses other than the ClusterIP.
const (
	balancerAddress = "an address of its load balancer"
	externalAddress = "an external address"
	proxiedAddress  = "an address that its load balancer answers itself" // from 1.30 kube-proxy ignores it
)

// serviceObject contains the fields of a v1 Service that determine whether and at which addresses kube-proxy serves it.
type serviceObject struct {
	Kind     string
	Metadata struct {
		Namespace, Name string
		Labels          map[string]string
	}
	Spec struct {
		Type       string
		ClusterIP  string
		ClusterIPs []string
		Ports      []struct {
			Name, Protocol string
			Port, NodePort int
		}
		ExternalIPs              []string
		InternalTrafficPolicy    string
		ExternalTrafficPolicy    string
		HealthCheckNodePort      int
		LoadBalancerSourceRanges []string
		SessionAffinity          string
		SessionAffinityConfig    struct {
			ClientIP struct{ TimeoutSeconds int }
		}
	}
	Status *struct {
		LoadBalancer struct {
			Ingress []struct {
				IP     string
				IPMode *string
			}
		}
	}
}

// outside returns the addresses of a family other than the ClusterIP at which kube-proxy serves a Service, and the ranges that may use
// the load balancer's addresses: newBaseServiceInfo of pkg/proxy/serviceport.go. It returns nil if they are unknown: an address may have
// leading zeros, which programs parse in two ways.
func (s *serviceObject) outside(family string) (addresses map[string]string, sources []string) {
	if s.Status == nil {
		return nil, nil
	}
	addresses = map[string]string{}
	known := true
	add := func(ip, what string) {
		a, err := netip.ParseAddr(ip)
		known = known && err == nil
		if a = a.Unmap(); familyOf(a) == family && (what != proxiedAddress || addresses[a.String()] == "") {
			addresses[a.String()] = what
		}
	}
	for _, ip := range s.Spec.ExternalIPs {
		add(ip, externalAddress)
	}
	for _, i := range s.Status.LoadBalancer.Ingress {
		switch {
		case i.IP == "":
		case i.IPMode == nil || *i.IPMode == "VIP":
			add(i.IP, balancerAddress)
		default:
			add(i.IP, proxiedAddress)
		}
	}
	everybody := false
	for _, r := range s.Spec.LoadBalancerSourceRanges {
		p, err := netip.ParsePrefix(strings.TrimSpace(r))
		known = known && err == nil
		if err == nil && familyOf(p.Addr()) == family {
			sources = append(sources, p.Masked().String())
			everybody = everybody || p.Bits() == 0
		}
	}
	switch {
	case !known:
		return nil, nil
	case everybody:
		return addresses, nil
	}
	return addresses, sources
}

// externalPolicy returns externalTrafficPolicy if kube-proxy uses it.
func (s *serviceObject) externalPolicy() string {
	if s.Spec.Type == "LoadBalancer" || s.Spec.Type == "NodePort" || len(s.Spec.ExternalIPs) > 0 {
		return s.Spec.ExternalTrafficPolicy
	}
	return ""
}

func familyOf(a netip.Addr) string {
	switch {
	case a.Is4():
		return ruleset.IPv4
	case a.Is6():
		return ruleset.IPv6
	}
	return ""
}

// LoadServices reads a list of Services in the format of `kubectl get services -A -o json` or of
// the API. It skips items of other kinds. Every error is an input.Error.
func LoadServices(r io.Reader) (all *Services, err error) {
	all = &Services{objects: map[string]*serviceObject{}}
	all.Version, err = loadItems(r, "Service", func(s *serviceObject) bool {
		return s.Kind == "Service" || s.Kind == "" && len(s.Spec.Ports) > 0
	}, func(s *serviceObject) error {
		all.Count++
		all.objects[s.id()] = s
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// ports returns the ports of all Services.
func (all *Services) ports() []apiServicePort {
	list := make([]apiServicePort, 0, len(all.objects))
	for _, name := range slices.Sorted(maps.Keys(all.objects)) {
		list = append(list, all.objects[name].ports()...)
	}
	return list
}

func (s *serviceObject) id() string { return s.Metadata.Namespace + "/" + s.Metadata.Name }

// ports returns the ports that kube-proxy serves: none of a nil, headless or ExternalName Service or of a Service of another proxy.
func (s *serviceObject) ports() (list []apiServicePort) {
	if s == nil || s.Spec.Type == "ExternalName" || has(s.Metadata.Labels, labelProxy) {
		return nil
	}
	ips := s.Spec.ClusterIPs
	if len(ips) == 0 {
		ips = []string{s.Spec.ClusterIP}
	}
	for _, ip := range ips {
		if ip == "" || ip == "None" {
			continue
		}
		ip = canonical(ip)
		family := ruleset.IPv4
		if strings.Contains(ip, ":") {
			family = ruleset.IPv6
		}
		outside, sources := s.outside(family)
		health := 0
		if s.Spec.Type == "LoadBalancer" && s.Spec.ExternalTrafficPolicy == "Local" {
			health = s.Spec.HealthCheckNodePort
		}
		for _, p := range s.Spec.Ports {
			list = append(list, apiServicePort{Service: Service{Name: formatServicePort(s.Metadata.Namespace, s.Metadata.Name, p.Name),
				Protocol: cmp.Or(strings.ToLower(p.Protocol), "tcp"), Family: family, ClusterIP: ip, Port: p.Port, NodePort: p.NodePort,
				SourceRanges: sources, Health: health, AffinitySeconds: s.Spec.SessionAffinityConfig.ClientIP.TimeoutSeconds},
				internal: s.Spec.InternalTrafficPolicy, external: s.externalPolicy(), affinity: s.Spec.SessionAffinity, outside: outside,
				unsure: has(s.Metadata.Labels, labelHeadless)})
			health = 0
		}
	}
	return list
}

func has(labels map[string]string, name string) bool {
	_, ok := labels[name]
	return ok
}
