package proxyrules

import (
	"io"
	"net/netip"
	"strings"

	"nodegate/internal/input"
	"nodegate/internal/ruleset"
)

// Services is all Services of the API.
type Services struct {
	Count   int    // read
	Version string // the list's resourceVersion
	list    []apiServicePort
}

// apiServicePort is one port of a Service in one address family.
type apiServicePort struct {
	namespace, name, port string
	proto, family         string
	clusterIP             string
	number, nodePort      int
	internal, affinity    string          // internalTrafficPolicy, sessionAffinity; "" where the API does not say
	outside               map[string]bool // addresses of load balancers, and external ones, in any family; nil: not known
}

// serviceObject is the part of a v1 Service that decides whether and where kube-proxy serves it.
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
		ExternalIPs           []string
		InternalTrafficPolicy string
		SessionAffinity       string
	}
	Status *struct {
		LoadBalancer struct {
			Ingress []struct{ IP string }
		}
	}
}

// outside returns the addresses beside the ClusterIP at which kube-proxy may serve a Service, nil where that is not known.
func (s *serviceObject) outside() map[string]bool {
	if s.Status == nil {
		return nil
	}
	all := map[string]bool{}
	for _, i := range s.Status.LoadBalancer.Ingress {
		all[canonical(i.IP)] = true
	}
	for _, ip := range s.Spec.ExternalIPs {
		all[canonical(ip)] = true
	}
	return all
}

// canonical spells an address as rules have it.
func canonical(ip string) string {
	if a, err := netip.ParseAddr(ip); err == nil {
		return a.Unmap().String()
	}
	return ip
}

// LoadServices reads a list of Services as `kubectl get services -A -o json` or the API prints it. Items of other kinds are
// passed over. It fails with an input.Error.
func LoadServices(r io.Reader) (*Services, error) { return loadServices(r, func(*serviceObject) {}) }

// loadServices passes each Service to keep, too.
func loadServices(r io.Reader, keep func(*serviceObject)) (*Services, error) {
	in := input.NewJSON(r)
	all := &Services{}
	others := 0
	err := in.Items("Service", func() error {
		var s serviceObject
		if err := in.Decode(&s); err != nil {
			return err
		}
		if s.Kind != "Service" && (s.Kind != "" || len(s.Spec.Ports) == 0) {
			others++
			return nil
		}
		all.Count++
		all.add(&s)
		keep(&s)
		return nil
	})
	if err != nil {
		return nil, err
	}
	all.Version = in.Version
	if all.Count == 0 && others > 0 {
		return nil, input.Unreadable(0, "no Service among %d items", others)
	}
	return all, nil
}

// add keeps the ports that kube-proxy serves: not those of headless and ExternalName Services or of another proxy.
func (all *Services) add(s *serviceObject) {
	if s.Spec.Type == "ExternalName" || s.Metadata.Labels[labelProxy] != "" {
		return
	}
	ips := s.Spec.ClusterIPs
	if len(ips) == 0 {
		ips = []string{s.Spec.ClusterIP}
	}
	outside := s.outside()
	for _, ip := range ips {
		if ip == "" || ip == "None" {
			continue
		}
		family := ruleset.IPv4
		if strings.Contains(ip, ":") {
			family = ruleset.IPv6
		}
		for _, p := range s.Spec.Ports {
			proto := strings.ToLower(p.Protocol)
			if proto == "" {
				proto = "tcp"
			}
			all.list = append(all.list, apiServicePort{namespace: s.Metadata.Namespace, name: s.Metadata.Name, port: p.Name,
				proto: proto, family: family, clusterIP: ip, number: p.Port, nodePort: p.NodePort,
				internal: s.Spec.InternalTrafficPolicy, affinity: s.Spec.SessionAffinity, outside: outside})
		}
	}
}
