package proxy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"nodegate/internal/ruleset"
)

// compareService compares the other fields of a Service port and stops at the first difference. It knows
// the form in which kube-proxy writes policies and addresses from 1.25, in nftables mode from 1.30.
func (c *comparison) compareService(s *Service, p *apiServicePort) {
	differences := []func(*Service, *apiServicePort) (name, words string){
		c.compareAddresses, c.compareSourceRanges, externalPolicy, internalPolicy, affinity, c.compareHealthRule,
	}
	if c.rep.ipvs != nil {
		differences = []func(*Service, *apiServicePort) (name, words string){c.compareAddresses, c.comparePlaces, c.compareSetRanges, affinity}
	} else if !c.knowsForm() || s.ClusterIP == "" {
		return
	}
	for _, differs := range differences {
		if name, words := differs(s, p); words != "" {
			c.addFinding(name, s, "%s", words)
			c.stale[keyOf(s)] = true
			return
		}
	}
}

// knowsForm reports whether the rules have the form from which the comparison reads addresses and policies.
func (c *comparison) knowsForm() bool {
	return c.rep.ipvs == nil && c.rep.Version.Min >= 25 && (c.rep.Mode != "nftables" || c.rep.Version.Min >= 30)
}

// dispatches reports whether the rules have endpoints for external traffic. Without endpoints, the
// rules contain little else of a Service.
func dispatches(s *Service) bool { return s.Blocked == "" && len(s.Endpoints) > 0 }

// compareAddresses compares the addresses of the Service other than its ClusterIP, with or without endpoints.
func (c *comparison) compareAddresses(s *Service, p *apiServicePort) (name, words string) {
	const wrong = "kubeproxy.truth.service-address"
	served := dispatches(s) || s.Blocked == "reject" && c.rep.ipvs == nil && c.rep.all().filtered[s.Family] && len(s.Name) < longestComment
	if served && s.NodePort == 0 && p.nodePort != 0 && (c.rep.ipvs == nil || c.rep.all().NodePorts[s.Family]) {
		return wrong, fmt.Sprintf("the API has node port %d, the rules have none: this node does not serve it", p.nodePort)
	}
	have := slices.Concat(s.ExternalIPs, s.LoadBalancerIPs)
	if p.outside == nil || len(have) >= maxAddresses {
		return "", ""
	}
	for _, ip := range have {
		if what := p.outside[ip]; what == "" || what == proxiedAddress && c.rep.Version.Min >= 30 {
			return wrong, fmt.Sprintf("this node still serves %s, port %d, an address that the Service no longer has", ip, p.number)
		}
	}
	for _, ip := range slices.Sorted(maps.Keys(p.outside)) {
		what := p.outside[ip]
		ignored := what == proxiedAddress || what == externalAddress && c.opts.unled()
		if !slices.Contains(have, ip) && !c.rep.isTaken(ip, s) && !ignored {
			return wrong, fmt.Sprintf("this node does not serve %s, port %d: in the API it is %s, but the rules lack it", ip, p.number, what)
		}
	}
	return "", ""
}

// compareHealthRule compares the port at which table filter accepts the load balancer's health checks.
func (c *comparison) compareHealthRule(s *Service, p *apiServicePort) (name, words string) {
	all := c.rep.all()
	if p.health == 0 || s.health == p.health || c.rep.Mode != "iptables" || !all.filtered[s.Family] {
		return "", ""
	}
	if s.health != 0 && c.opts.Listening != nil {
		if open, err := c.opts.Listening(); err != nil || !open[uint16(p.health)] {
			return "", "" // healthPorts judges a port that has changed
		}
	}
	return "kubeproxy.truth.service-address", fmt.Sprintf("table filter does not accept connections to health check node port %d: "+
		"if the policy of chain INPUT is DROP, the load balancer sends this node no traffic", p.health)
}

// comparePlaces compares the addresses of a Service port's virtual servers with the addresses in the API.
func (c *comparison) comparePlaces(s *Service, p *apiServicePort) (name, words string) {
	const wrong = "kubeproxy.truth.service-address"
	v := c.rep.ipvs
	for _, at := range s.servers {
		if ip := at.Address.Addr(); !v.Local[ip] {
			return wrong, fmt.Sprintf("%s is not on kube-ipvs0: only this node itself can connect to port %d", ip, at.Address.Port())
		}
	}
	for _, ip := range v.nodes[s.Family] {
		if s.NodePort != 0 && v.at[formatPlace(ip, s.NodePort, s.Protocol)] == nil {
			return wrong, fmt.Sprintf("this node does not serve node port %d at %s, where it serves other node ports", p.nodePort, ip)
		}
	}
	return "", ""
}

// isTaken reports whether the rules assign an address and port of a Service to another Service that also requests it.
func (r *Judgment) isTaken(ip string, by *Service) bool {
	return slices.ContainsFunc(r.all().Services, func(s Service) bool {
		return s.Name != by.Name && s.Port == by.Port && s.Protocol == by.Protocol &&
			(s.ClusterIP == ip || slices.Contains(s.ExternalIPs, ip) || slices.Contains(s.LoadBalancerIPs, ip))
	})
}

// compareSourceRanges compares the clients that may use the load balancer's addresses. If one of the
// ranges contains the node's own address, the rules also admit these addresses themselves. From
// 1.30, kube-proxy does not enforce ranges for addresses that the load balancer answers itself
// (ipMode Proxy). Rules of 1.30 may look older, so such addresses count only if the rules contain them.
func (c *comparison) compareSourceRanges(s *Service, p *apiServicePort) (name, words string) {
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
	if name, words = rangesDiffer(s, p, own, s.SourceRanges, len(s.SourceRanges) > 0); words != "" {
		return name, words
	}
	open := slices.DeleteFunc(own, func(ip string) bool { // served, but without the chain of the ranges
		return slices.Contains(s.LoadBalancerIPs, ip) || !slices.Contains(s.ExternalIPs, ip)
	})
	if len(open) == 0 || c.rep.ipvs != nil {
		return "", ""
	}
	return rangesDiffer(s, p, open, nil, false)
}

// compareSetRanges compares the clients that may use each address of the load balancer in IPVS mode.
func (c *comparison) compareSetRanges(s *Service, p *apiServicePort) (name, words string) {
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

// rangesDiffer compares the ranges that the rules admit to the load balancer's own addresses with
// the API. closed reports whether the rules restrict access.
func rangesDiffer(s *Service, p *apiServicePort, own, let []string, closed bool) (name, words string) {
	const wrong = "kubeproxy.truth.source-ranges"
	if containsAll(let) { // older versions write a range that contains all addresses
		let, closed = nil, false
	}
	sources := p.sources
	if containsAll(sources) {
		sources = nil
	}
	got, readable := ruleset.Spans(slices.Concat(let, own))
	want, _ := ruleset.Spans(slices.Concat(sources, own))
	at, who := strings.Join(own, ", "), "no clients"
	if len(let) > 0 {
		who = formatFirst(let)
	}
	switch {
	case !readable, slices.Equal(got, want) && closed == (len(sources) > 0):
	case len(sources) == 0:
		return wrong, fmt.Sprintf("the API has no loadBalancerSourceRanges for the load balancer address %s; this node admits only %s", at, who)
	case closed:
		return wrong, fmt.Sprintf("loadBalancerSourceRanges is %s in the API; this node admits %s to the load balancer address %s",
			formatFirst(sources), who, at)
	case dispatches(s):
		return wrong, fmt.Sprintf("loadBalancerSourceRanges is %s in the API; this node admits all clients to the load balancer address %s",
			formatFirst(sources), at)
	}
	return "", ""
}

// containsAll reports whether ranges contain all addresses.
func containsAll(ranges []string) bool {
	all, _ := ruleset.Spans(ranges)
	return len(all) == 1 && all[0].First.IsUnspecified() && !all[0].Last.Next().IsValid()
}

// externalPolicy compares the endpoints for external traffic with externalTrafficPolicy. The rules
// show the policy even on a node without endpoints.
func externalPolicy(s *Service, p *apiServicePort) (name, words string) {
	const wrong = "kubeproxy.truth.service-policy"
	outside := s.NodePort != 0 || len(s.ExternalIPs)+len(s.LoadBalancerIPs) > 0
	switch {
	case !outside || len(s.Endpoints) == 0 || s.ExternalLocal == (p.external == "Local"):
	case p.external == "Local":
		return wrong, "externalTrafficPolicy is Local in the API: this node also sends external traffic to endpoints of other nodes and " +
			"hides the client addresses"
	case p.external == "Cluster" && len(s.LocalEndpoints) == 0:
		return wrong, "externalTrafficPolicy is Cluster in the API: this node drops external traffic because it has no local endpoint"
	case p.external == "Cluster":
		return wrong, "externalTrafficPolicy is Cluster in the API: this node sends external traffic only to its own endpoints"
	}
	return "", ""
}

func internalPolicy(s *Service, p *apiServicePort) (name, words string) {
	if s.InternalLocal && p.internal == "Cluster" || dispatches(s) && !s.InternalLocal && p.internal == "Local" {
		return "kubeproxy.truth.service-policy", fmt.Sprintf("internalTrafficPolicy is %s in the API: this node sends connections to %s %s",
			p.internal, s.ClusterIP, map[bool]string{true: "only to its own endpoints", false: "also to endpoints of other nodes"}[s.InternalLocal])
	}
	return "", ""
}

func affinity(s *Service, p *apiServicePort) (name, words string) {
	const wrong = "kubeproxy.truth.service-policy"
	switch {
	case s.AffinitySeconds != 0 && p.affinity == "None":
		return wrong, fmt.Sprintf("sessionAffinity is None in the API: this node keeps each client on one endpoint for %d s", s.AffinitySeconds)
	case s.AffinitySeconds == 0 && p.affinity == "ClientIP" && s.Blocked == "" && len(s.Endpoints)+len(s.LocalEndpoints) > 0:
		return wrong, "sessionAffinity is ClientIP in the API: this node sends each connection to any endpoint"
	case s.AffinitySeconds != 0 && p.affinity == "ClientIP" && p.timeout != 0 && s.AffinitySeconds != p.timeout:
		return wrong, fmt.Sprintf("the sessionAffinity timeout is %d s in the API, %d s on this node", p.timeout, s.AffinitySeconds)
	}
	return "", ""
}

// compared is one Service port of the rules, for comparison with versions of the API.
type compared struct {
	rep  *Judgment
	port ServicePort
	opts Options
	left []Service // IPVS mode: its rules if the API lacks the Service
}

func newCompared(rep *Judgment, p ServicePort, opts Options) compared {
	c := compared{rep: rep.onlyService(p), port: p, opts: opts}
	c.left = c.leftOver()
	return c
}

// onlyService returns a report of one Service port.
func (r *Judgment) onlyService(p ServicePort) *Judgment {
	one := &Judgment{Mode: r.Mode, Version: r.Version, Families: r.Families, whole: r, ipvs: r.ipvs}
	for i := range r.Services {
		if s := &r.Services[i]; s.Name == p.Name && s.Family == p.Family {
			one.Services = append(one.Services, *s)
		}
	}
	return one
}

func (c compared) service(ports []apiServicePort) []Finding {
	return c.compareWith(ports, func(with comparison) { with.compareServices() })
}

func (c compared) health(ports []apiServicePort) []Finding {
	return c.compareWith(ports, func(with comparison) { with.healthPorts() })
}

// compareWith compares the ports of a version with the function how.
func (c compared) compareWith(ports []apiServicePort, how func(comparison)) []Finding {
	out := NewCollector()
	opts := c.opts
	opts.Services, opts.Endpoints = &Services{list: c.ownPorts(ports)}, nil
	how(newComparison(c.namedReport(ports), &opts, nil, out))
	return out.List
}

// ownPorts returns the compared ports of a Service.
func (c compared) ownPorts(ports []apiServicePort) []apiServicePort {
	return slices.DeleteFunc(slices.Clone(ports), func(s apiServicePort) bool {
		return s.family != c.port.Family || formatServicePort(s.namespace, s.name, s.port) != c.port.Name
	})
}

// endpoints compares a report with a version of the endpoints.
func (c compared) endpoints(rep *Judgment, e *apiEndpoints) []Finding {
	all := &Endpoints{services: map[string]*apiEndpoints{}}
	if e != nil {
		all.services[c.port.Service()] = e
	}
	out := NewCollector()
	opts := c.opts
	opts.Endpoints, opts.Services = all, nil
	with := newComparison(rep, &opts, nil, out)
	for i := range rep.Services {
		with.compareEndpoints(&rep.Services[i])
	}
	return out.List
}

// claimant returns the Service port in the API that owns a virtual server without a name; with past
// also one that owned it before. It returns p if nothing owns it or if p has a name.
func (v *Versions) claimant(rep *Judgment, p ServicePort, past bool) ServicePort {
	if rep.ipvs == nil || rep.ipvs.at[p.Name] == nil {
		return p
	}
	among := func(ports []apiServicePort) bool {
		i := slices.IndexFunc(ports, func(of apiServicePort) bool { return rep.ipvs.serves(rep.ipvs.at[p.Name], &of) })
		if i >= 0 {
			p = ServicePort{formatServicePort(ports[i].namespace, ports[i].name, ports[i].port), ports[i].family}
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
