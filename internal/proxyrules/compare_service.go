package proxyrules

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"nodegate/internal/ruleset"
)

// service compares what else is sure of one port of a Service, until something differs. Policies and addresses are written as they
// are from 1.25 on, in nftables mode from 1.30.
func (c *comparison) service(s *Service, p *apiServicePort) {
	differences := []func(*Service, *apiServicePort) (name, words string){
		c.addresses, c.sourceRanges, externalPolicy, internalPolicy, affinity,
	}
	if c.rep.ipvs != nil {
		differences = []func(*Service, *apiServicePort) (name, words string){c.addresses, c.places, c.setRanges, affinity}
	} else if c.rep.Version.Min < 25 || c.rep.Mode == "nftables" && c.rep.Version.Min < 30 || s.ClusterIP == "" {
		return
	}
	for _, differs := range differences {
		if name, words := differs(s, p); words != "" {
			c.find(name, s, "%s", words)
			c.stale[keyOf(s)] = true
			return
		}
	}
}

// dispatches reports whether the rules have endpoints for external traffic: without them, they have little else of a Service.
func dispatches(s *Service) bool { return s.Blocked == "" && len(s.Endpoints) > 0 }

// addresses compares where the Service is reached beside its ClusterIP, with and without endpoints.
func (c *comparison) addresses(s *Service, p *apiServicePort) (name, words string) {
	const wrong = "kubeproxy.truth.service-address"
	if dispatches(s) && s.NodePort == 0 && p.nodePort != 0 && (c.rep.ipvs == nil || c.rep.all().NodePorts[s.Family]) {
		return wrong, fmt.Sprintf("the API has node port %d, the rules have none: this node does not answer there", p.nodePort)
	}
	have := slices.Concat(s.ExternalIPs, s.LoadBalancerIPs)
	if p.outside == nil || len(have) >= maxAddresses {
		return "", ""
	}
	for _, ip := range have {
		if what := p.outside[ip]; what == "" || what == proxiedAddress && c.rep.Version.Min >= 30 {
			return wrong, fmt.Sprintf("this node still takes what is sent to %s, port %d: the Service has that address no longer", ip, p.number)
		}
	}
	for _, ip := range slices.Sorted(maps.Keys(p.outside)) {
		what := p.outside[ip]
		ignored := what == proxiedAddress || what == externalAddress && c.rep.all().NoExternalIPs != nil && c.rep.all().NoExternalIPs()
		if !slices.Contains(have, ip) && !c.rep.taken(ip, s) && !ignored {
			return wrong, fmt.Sprintf("this node does not answer what is sent to %s, port %d: it is %s in the API, and the rules do not have it",
				ip, p.number, what)
		}
	}
	return "", ""
}

// places compares where the virtual servers of a Service port are with where they are reached.
func (c *comparison) places(s *Service, p *apiServicePort) (name, words string) {
	const wrong = "kubeproxy.truth.service-address"
	v := c.rep.ipvs
	for _, at := range s.servers {
		if ip := at.Address.Addr(); !v.Local[ip] {
			return wrong, fmt.Sprintf("%s is not on kube-ipvs0: what comes for port %d from elsewhere than this node itself is not taken", ip,
				at.Address.Port())
		}
	}
	for _, ip := range v.nodes[s.Family] {
		if s.NodePort != 0 && v.at[place(ip, s.NodePort, s.Protocol)] == nil {
			return wrong, fmt.Sprintf("this node does not answer node port %d at %s, where it answers others", p.nodePort, ip)
		}
	}
	return "", ""
}

// taken reports whether the rules give an address and port of a Service to another one, which asks for it too.
func (r *Judgment) taken(ip string, by *Service) bool {
	return slices.ContainsFunc(r.all().Services, func(s Service) bool {
		return s.Name != by.Name && s.Port == by.Port && s.Protocol == by.Protocol &&
			(s.ClusterIP == ip || slices.Contains(s.ExternalIPs, ip) || slices.Contains(s.LoadBalancerIPs, ip))
	})
}

// sourceRanges compares who may use the addresses of the load balancer. Where one of the ranges has the node's own address, the
// rules let these addresses themselves in too. From 1.30 that are not those which the load balancer answers itself (ipMode Proxy), and
// rules of 1.30 may look older: these count where the rules have them.
func (c *comparison) sourceRanges(s *Service, p *apiServicePort) (name, words string) {
	var own []string
	for ip, what := range p.outside {
		if what == balancerAddress || what == proxiedAddress && slices.Contains(s.LoadBalancerIPs, ip) {
			own = append(own, ip)
		}
	}
	if len(own) == 0 {
		return "", ""
	}
	slices.Sort(own)
	return rangesDiffer(s, p, own, s.SourceRanges, len(s.SourceRanges) > 0)
}

// setRanges compares who may use each address of the load balancer in IPVS mode.
func (c *comparison) setRanges(s *Service, p *apiServicePort) (name, words string) {
	v := c.rep.ipvs
	for _, at := range s.servers {
		ip := at.Address.Addr().String()
		if v.Sources == nil || p.outside[ip] != balancerAddress || len(v.claims[at.VirtualServer]) > 1 {
			continue
		}
		ranges, closed := v.Sources[ruleset.Portal{Address: at.Address, Protocol: at.Protocol}]
		var let []string
		for _, r := range ranges {
			let = append(let, r.String())
		}
		slices.Sort(let)
		if name, words = rangesDiffer(s, p, []string{ip}, let, closed); words != "" {
			return name, words
		}
	}
	return "", ""
}

// rangesDiffer compares who alone may use the load balancer's own addresses, where they are closed, with what the API says.
func rangesDiffer(s *Service, p *apiServicePort, own, let []string, closed bool) (name, words string) {
	const wrong = "kubeproxy.truth.source-ranges"
	if everybody(let) { // older versions write that, too
		let, closed = nil, false
	}
	sources := p.sources
	if everybody(sources) {
		sources = nil
	}
	got, readable := ruleset.Spans(slices.Concat(let, own))
	want, _ := ruleset.Spans(slices.Concat(sources, own))
	at, who := strings.Join(own, ", "), "nobody"
	if len(let) > 0 {
		who = first(let)
	}
	switch {
	case !readable, slices.Equal(got, want) && closed == (len(sources) > 0):
	case len(sources) == 0:
		return wrong, fmt.Sprintf("anybody may use the load balancer's address (%s) in the API; this node lets in %s only, and drops the rest",
			at, who)
	case closed:
		return wrong, fmt.Sprintf("loadBalancerSourceRanges is %s in the API; this node lets %s use the load balancer's address (%s)",
			first(sources), who, at)
	case dispatches(s):
		return wrong, fmt.Sprintf("loadBalancerSourceRanges is %s in the API; this node lets anybody use the load balancer's address (%s)",
			first(sources), at)
	}
	return "", ""
}

// everybody reports whether ranges leave nobody out.
func everybody(ranges []string) bool {
	all, _ := ruleset.Spans(ranges)
	return len(all) == 1 && all[0].First.IsUnspecified() && !all[0].Last.Next().IsValid()
}

// externalPolicy compares who takes what comes from outside. The rules show it also on a node without an endpoint.
func externalPolicy(s *Service, p *apiServicePort) (name, words string) {
	const wrong = "kubeproxy.truth.service-policy"
	outside := s.NodePort != 0 || len(s.ExternalIPs)+len(s.LoadBalancerIPs) > 0
	switch {
	case !outside || len(s.Endpoints) == 0 || s.ExternalLocal == (p.external == "Local"):
	case p.external == "Local":
		return wrong, "externalTrafficPolicy is Local in the API: this node sends what comes from outside to endpoints of other nodes too, and " +
			"hides the clients' addresses"
	case p.external == "Cluster" && len(s.LocalEndpoints) == 0:
		return wrong, "externalTrafficPolicy is Cluster in the API: this node drops what comes from outside, because it has no endpoint itself"
	case p.external == "Cluster":
		return wrong, "externalTrafficPolicy is Cluster in the API: this node sends what comes from outside to its own endpoints only"
	}
	return "", ""
}

func internalPolicy(s *Service, p *apiServicePort) (name, words string) {
	if s.InternalLocal && p.internal == "Cluster" || dispatches(s) && !s.InternalLocal && p.internal == "Local" {
		return "kubeproxy.truth.service-policy", fmt.Sprintf("internalTrafficPolicy is %s in the API: this node sends connections to %s %s",
			p.internal, s.ClusterIP, map[bool]string{true: "to its own endpoints only", false: "to endpoints of other nodes too"}[s.InternalLocal])
	}
	return "", ""
}

func affinity(s *Service, p *apiServicePort) (name, words string) {
	const wrong = "kubeproxy.truth.service-policy"
	switch {
	case s.AffinitySeconds != 0 && p.affinity == "None":
		return wrong, fmt.Sprintf("sessionAffinity is None in the API: this node keeps a client with one endpoint for %d s", s.AffinitySeconds)
	case s.AffinitySeconds == 0 && p.affinity == "ClientIP" && s.Blocked == "" && len(s.Endpoints)+len(s.LocalEndpoints) > 0:
		return wrong, "sessionAffinity is ClientIP in the API: this node sends each connection of a client to any endpoint"
	case s.AffinitySeconds != 0 && p.affinity == "ClientIP" && p.timeout != 0 && s.AffinitySeconds != p.timeout:
		return wrong, fmt.Sprintf("sessionAffinity keeps a client with one endpoint for %d s in the API, for %d s on this node",
			p.timeout, s.AffinitySeconds)
	}
	return "", ""
}

// compared is one Service port of the rules, compared with versions of the API.
type compared struct {
	rep        *Judgment
	port       ServicePort
	node, zone string
	left       []Service // IPVS mode: of it where the API does not have it
}

func newCompared(rep *Judgment, p ServicePort, node, zone string) compared {
	c := compared{rep: rep.only(p), port: p, node: node, zone: zone}
	c.left = c.leftOver()
	return c
}

// only returns the report of one Service port.
func (r *Judgment) only(p ServicePort) *Judgment {
	one := &Judgment{Mode: r.Mode, Version: r.Version, Families: r.Families, whole: r, ipvs: r.ipvs}
	for i := range r.Services {
		if s := &r.Services[i]; s.Name == p.Name && s.Family == p.Family {
			one.Services = append(one.Services, *s)
		}
	}
	return one
}

func (c compared) service(ports []apiServicePort) []Finding {
	return c.with(ports, func(with comparison) { with.services() })
}

func (c compared) health(ports []apiServicePort) []Finding {
	return c.with(ports, func(with comparison) { with.healthPorts() })
}

// with compares in one way with the ports of a version.
func (c compared) with(ports []apiServicePort, how func(comparison)) []Finding {
	out := NewCollector()
	how(newComparison(c.named(ports), &Options{Services: &Services{list: c.own(ports)}}, nil, out))
	return out.List
}

// own returns those of a Service's ports that are compared.
func (c compared) own(ports []apiServicePort) []apiServicePort {
	return slices.DeleteFunc(slices.Clone(ports), func(s apiServicePort) bool {
		return s.family != c.port.Family || servicePort(s.namespace, s.name, s.port) != c.port.Name
	})
}

// endpoints compares a report with a version of the endpoints.
func (c compared) endpoints(rep *Judgment, e *apiEndpoints) []Finding {
	all := &Endpoints{services: map[string]*apiEndpoints{}}
	if e != nil {
		all.services[c.port.Service()] = e
	}
	out := NewCollector()
	with := newComparison(rep, &Options{Endpoints: all, NodeName: c.node, Zone: c.zone}, nil, out)
	for i := range rep.Services {
		with.endpoints(&rep.Services[i])
	}
	return out.List
}

// claimant returns the Service port that has a virtual server without a name in the API; with past, or had. It returns p where there is
// none, or p has a name.
func (v *Versions) claimant(rep *Judgment, p ServicePort, past bool) ServicePort {
	if rep.ipvs == nil || rep.ipvs.at[p.Name] == nil {
		return p
	}
	among := func(ports []apiServicePort) bool {
		i := slices.IndexFunc(ports, func(of apiServicePort) bool { return rep.ipvs.serves(rep.ipvs.at[p.Name], &of) })
		if i >= 0 {
			p = ServicePort{servicePort(ports[i].namespace, ports[i].name, ports[i].port), ports[i].family}
		}
		return i >= 0
	}
	for name := range v.objects {
		if among(v.ports(name)) {
			return p
		}
	}
	for _, versions := range v.pastPort {
		if past && slices.ContainsFunc(versions, among) {
			return p
		}
	}
	return p
}
