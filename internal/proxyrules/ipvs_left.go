package proxyrules

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"nodegate/internal/ruleset"
)

// nameless returns a virtual server as a Service that the API does not have, called by its place. It reports whether that is
// certainly kube-proxy's, which takes it away: its address is on kube-ipvs0, or it has the form of a node port.
func (v *ipvs) nameless(at *ruleset.VirtualServer) (s Service, certain bool) {
	ip, port := at.Address.Addr(), int(at.Address.Port())
	s = Service{Name: place(ip, port, at.Protocol), Protocol: at.Protocol, Family: familyOf(ip), ClusterIP: ip.String(), Port: port,
		AffinitySeconds: at.Affinity, Endpoints: endpointsOf(at)}
	if v.Bound[ip] {
		return s, !v.excludes(ip)
	}
	s.NodePort = port
	return s, v.leftNodePort(at)
}

// leftNodePort reports whether a virtual server can be nothing but a node port: a port of the usual range is served at each address of the
// node at which node ports are answered. It stands for all of these where it is at the first one.
func (v *ipvs) leftNodePort(at *ruleset.VirtualServer) bool {
	ip, port := at.Address.Addr(), int(at.Address.Port())
	nodes := v.nodes[familyOf(ip)]
	if port < 30000 || port > 32767 || len(nodes) == 0 || nodes[0] != ip || v.excludes(ip) {
		return false
	}
	return !slices.ContainsFunc(nodes, func(node netip.Addr) bool {
		other := v.at[place(node, port, at.Protocol)]
		return other == nil || len(v.claims[other]) > 0
	})
}

// named returns the report as it is with one version of the Service's ports: in IPVS mode it has no names of its own.
func (c compared) named(ports []apiServicePort) *Judgment {
	if c.rep.ipvs == nil {
		return c.rep
	}
	one := *c.rep
	one.Services = nil
	ports = c.own(ports)
	for i := range ports {
		if s, found := c.rep.ipvs.service(&ports[i]); found {
			one.Services = append(one.Services, s)
		}
	}
	if len(ports) == 0 {
		one.Services = c.left
	}
	return &one
}

// leftOver returns what there is of a Service port where the API does not have it: what other versions had, unless another Service has
// it now.
func (c compared) leftOver() []Service {
	v := c.rep.ipvs
	if v == nil {
		return nil
	}
	if at := v.at[c.port.Name]; at != nil {
		if s, stale := v.nameless(at); stale {
			return []Service{s}
		}
	}
	for _, ports := range v.versions(c.port.Service()) {
		for _, p := range c.own(ports) {
			s, found := v.service(&p)
			if found && !slices.ContainsFunc(v.claims[s.servers[0].VirtualServer], func(by ServicePort) bool { return by != c.port }) {
				return []Service{s}
			}
		}
	}
	return nil
}

// state is what there is at all places that a Service port has or had in the API, so that it changes with what kube-proxy does only.
// External addresses are left out, but for who may use them: another Service may have them too.
func (v *ipvs) state(p ServicePort) string {
	ports := compared{port: p}.own(slices.Concat(v.versions(p.Service())...))
	var lines []string
	for at, ranges := range v.Sources {
		ip, port := at.Address.Addr().String(), int(at.Address.Port())
		if slices.ContainsFunc(ports, func(of apiServicePort) bool {
			return of.outside[ip] != "" && port == of.number && at.Protocol == of.proto
		}) {
			lines = append(lines, fmt.Sprint(at, ranges))
		}
	}
	for i := range ports {
		ports[i].outside = map[string]string{}
	}
	for place, at := range v.at {
		if place == p.Name || slices.ContainsFunc(ports, func(of apiServicePort) bool { return v.serves(at, &of) }) {
			lines = append(lines, fmt.Sprint(place, v.Local[at.Address.Addr()], at.Affinity, endpointsOf(at)))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
