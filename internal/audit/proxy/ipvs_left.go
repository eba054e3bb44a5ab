package proxy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"nodegate/internal/audit/model"
	"nodegate/internal/ruleset"
	"nodegate/internal/verdict"
)

// nameless returns a virtual server as a Service that the API lacks, with its place as the name. certain reports whether kube-proxy
// certainly owns it and would delete it: its address is on kube-ipvs0, or it has the form of a node port.
func (v *ipvs) nameless(at *ruleset.VirtualServer) (s Service, certain bool) {
	ip, port := at.Address.Addr(), int(at.Address.Port())
	s = Service{Name: formatPlace(ip, port, at.Protocol), Protocol: at.Protocol, Family: familyOf(ip), ClusterIP: ip.String(), Port: port,
		AffinitySeconds: at.Affinity, Endpoints: endpointsOf(at)}
	if v.Bound[ip] {
		return s, !v.isExcluded(ip)
	}
	s.NodePort = port
	return s, v.leftNodePort(at)
}

// judgeLeftRejects reports rules of iptables mode that still reject connections to a Service, although IPVS has endpoints of
// it. IPVS mode writes no such rules, and does not delete them (kubernetes#102314). A file has no virtual servers: whether the
// Service has endpoints now is not known then.
func (r *Judgment) judgeLeftRejects(s *ruleset.Save, out *Collector) {
	filter := s.Table("filter")
	for _, name := range []string{"KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES"} {
		c := filter.Chain(name)
		if c == nil || c.Refs == 0 {
			continue
		}
		for rule := range filter.Rules(name) {
			service, what := model.SplitPortal(rule.Comment)
			ip, err := netip.ParseAddr(model.TrimCIDR(rule.Destination))
			if err != nil || !strings.HasPrefix(what, "has no") || rule.Target != "REJECT" && rule.Target != "DROP" {
				continue
			}
			place := formatPlace(ip, atoi(rule.Port), rule.Protocol)
			f := Finding{Name: "kubeproxy.ipvs.left-reject", Service: strings.TrimSuffix(service, ":"), Family: s.Family, Table: "filter",
				Chain: name, Line: int(rule.Line), Rule: rule.Text}
			if r.ipvs == nil {
				f.Verdict, f.Means = verdict.Warn, "a rule that iptables mode left rejects connections to a Service, which may have endpoints now"
				f.Message = fmt.Sprintf("%s still rejects %s; IPVS mode does not write this rule", name, place)
				out.Add(f)
				continue
			}
			at := r.ipvs.at[place]
			if at == nil || !slices.ContainsFunc(at.Servers, func(s ruleset.RealServer) bool { return s.Weight > 0 }) {
				continue // it has none now either
			}
			f.Message = fmt.Sprintf("%s still rejects %s, for which IPVS has %d endpoints", name, at.Address, len(at.Servers))
			out.Add(f)
		}
	}
}

// leftNodePort reports whether a virtual server must be a node port: a port of the usual range that is served at each node address that
// serves node ports. The server at the first address represents all of them.
func (v *ipvs) leftNodePort(at *ruleset.VirtualServer) bool {
	ip, port := at.Address.Addr(), int(at.Address.Port())
	nodes := v.nodes[familyOf(ip)]
	if port < 30000 || port > 32767 || len(nodes) == 0 || nodes[0] != ip || v.isExcluded(ip) {
		return false
	}
	return !slices.ContainsFunc(nodes, func(node netip.Addr) bool {
		other := v.at[formatPlace(node, port, at.Protocol)]
		return other == nil || len(v.claims[other]) > 0
	})
}

// claimant returns the Service port in the API that owns a virtual server without a name; with past
// also one that owned it before. It returns p if nothing owns it or if p has a name.
func (v *Versions) claimant(rep *Judgment, p ServicePort, past bool) ServicePort {
	if rep.ipvs == nil || rep.ipvs.at[p.Name] == nil {
		return p
	}
	among := func(s *serviceObject) bool {
		ports := s.ports()
		i := slices.IndexFunc(ports, func(of apiServicePort) bool { return rep.ipvs.serves(rep.ipvs.at[p.Name], &of) })
		if i >= 0 {
			p = ServicePort{ports[i].Name, ports[i].Family}
		}
		return i >= 0
	}
	for _, s := range v.Services.objects {
		if among(s) {
			return p
		}
	}
	for _, versions := range v.pastServices {
		if past && slices.ContainsFunc(versions, among) {
			return p
		}
	}
	return p
}

// namedReport returns the report with the names of one version of the compared ports: in IPVS mode the rules contain no names.
func (c compared) namedReport(ports []apiServicePort) *Judgment {
	if c.rep.ipvs == nil {
		return c.rep
	}
	one := *c.rep
	one.Services = nil
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

// leftOver returns the remaining virtual servers of a Service port that the API lacks now. Virtual
// servers that another Service uses now are excluded.
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
	for _, service := range v.versions.services(c.port.Service()) {
		for _, p := range c.port.among(service.ports()) {
			s, found := v.service(&p)
			if found && !slices.ContainsFunc(v.claims[s.Servers[0].VirtualServer], func(by ServicePort) bool { return by != c.port }) {
				return []Service{s}
			}
		}
	}
	return nil
}

// state describes all places of a Service port, now or earlier, so that it changes only if kube-proxy changes something. For external
// addresses it contains only the permitted clients, because another Service may share the address.
func (v *ipvs) state(p ServicePort) string {
	var ports []apiServicePort
	for _, service := range v.versions.services(p.Service()) {
		ports = append(ports, p.among(service.ports())...)
	}
	var lines []string
	for at, ranges := range v.Sources {
		ip, port := at.Address.Addr().String(), int(at.Address.Port())
		if slices.ContainsFunc(ports, func(of apiServicePort) bool {
			return of.outside[ip] != "" && port == of.Port && at.Protocol == of.Protocol
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
