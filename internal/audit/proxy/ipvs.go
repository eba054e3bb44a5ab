package proxy

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"nodegate/internal/audit/model"
	"nodegate/internal/ruleset"
	"nodegate/internal/sorted"
)

// ipvs holds the virtual servers of a node in IPVS mode. They lack names: only the addresses in
// the API show to which Service each belongs (pkg/proxy/ipvs/proxier.go).
type ipvs struct {
	*ruleset.IPVS
	// excludeCIDRs are ranges in which kube-proxy deletes no virtual servers. It still creates virtual servers for Services there.
	excludeCIDRs []netip.Prefix

	at       map[string]*ruleset.VirtualServer        // by place
	families map[string]bool                          // families with rules of IPVS mode
	nodes    map[string][]netip.Addr                  // by family: addresses that serve the node ports of the API's Services
	claims   map[*ruleset.VirtualServer][]ServicePort // the Service ports in the API that request it
	versions *Versions                                // of the API, if it is followed; else nil
}

// formatPlace formats the key of a virtual server: 10.96.0.1:443/tcp.
func formatPlace(address netip.Addr, port int, proto string) string {
	return netip.AddrPortFrom(address, uint16(port)).String() + "/" + proto
}

func newIPVS(all *ruleset.IPVS) *ipvs {
	v := &ipvs{IPVS: all, at: make(map[string]*ruleset.VirtualServer, len(all.Servers)), families: map[string]bool{}}
	for i := range all.Servers {
		s := &all.Servers[i]
		v.at[formatPlace(s.Address.Addr(), int(s.Address.Port()), s.Protocol)] = s
	}
	return v
}

// judgeIPVS records a family whose iptables rules belong to IPVS mode. It does not judge other rules.
func (r *Judgment) judgeIPVS(s *ruleset.Save, opts *Options, out *Collector) {
	f := Finding{Name: "kubeproxy.mode.ipvs", Family: s.Family}
	dispatches := false
	for rule := range s.Table("nat").Rules("KUBE-SERVICES") {
		kind, _ := model.ServiceChain(rule.Target)
		dispatches = dispatches || kind == "SVC"
	}
	switch {
	case dispatches:
		f.Message = "found rules of both IPVS mode and iptables mode: the mode that kube-proxy uses now is unknown"
		f.Remedy = otherMode
	case r.ipvs == nil:
		r.judgeLeftRejects(s, out)
		f.Message = "found rules of IPVS mode without its virtual servers, which only the node's kernel has"
	default:
		r.ipvs.families[s.Family] = true
		r.judgeLeftRejects(s, out)
		if opts.Services != nil {
			return
		}
		f.Message = "in IPVS mode the node stores no Service names: without the API's Services, the rules cannot be judged"
	}
	out.Add(f)
}

// settleIPVS keeps the virtual servers in the report if they belong to kube-proxy and it uses no other mode.
func (r *Judgment) settleIPVS(out *Collector) {
	switch {
	case r.ipvs == nil:
	case len(r.ipvs.families) == 0: // another program's
		r.ipvs = nil
	case len(r.Families) > 0:
		r.ipvs = nil
		out.Add(Finding{Name: "kubeproxy.mode.ipvs", Message: "found rules of IPVS mode and of another mode"})
	default:
		r.Families = r.ipvs.families
	}
}

// nameServices builds the Services of the report: the virtual servers of the API's Services, and the virtual servers without a Service.
func (r *Judgment) nameServices(ports []apiServicePort) {
	v := r.ipvs
	v.findNodes(ports)
	v.claims = map[*ruleset.VirtualServer][]ServicePort{}
	var unknown []*apiServicePort // Service ports with an unreadable address
	r.Services = make([]Service, 0, len(ports))
	for i := range ports {
		p := &ports[i]
		if !r.Families[p.Family] {
			continue
		}
		s, found := v.service(p)
		for _, at := range s.Servers {
			v.claims[at.VirtualServer] = append(v.claims[at.VirtualServer], ServicePort{s.Name, s.Family})
		}
		if found {
			r.Services = append(r.Services, s)
		}
		if p.outside == nil {
			unknown = append(unknown, p)
		}
	}
	for i := range v.Servers {
		at := &v.Servers[i]
		s, stale := v.nameless(at)
		may := func(p *apiServicePort) bool { return v.serves(at, p) }
		if len(v.claims[at]) == 0 && stale && r.Families[s.Family] && !slices.ContainsFunc(unknown, may) {
			r.Services = append(r.Services, s)
		}
	}
	for family, nodes := range v.nodes {
		r.NodePorts[family] = len(nodes) > 0
	}
	r.Findings = slices.DeleteFunc(r.Findings, func(f Finding) bool { return f.Name == "kubeproxy.mode.ipvs" && r.Families[f.Family] })
}

// isExcluded reports whether a virtual server at an address may belong to another program, or stays after its Service is deleted.
func (v *ipvs) isExcluded(ip netip.Addr) bool {
	return slices.ContainsFunc(v.excludeCIDRs, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// findNodes finds the node addresses that serve node ports: kube-proxy has a virtual server at each
// address, for each port. An excluded address counts only if all of its virtual servers exist.
func (v *ipvs) findNodes(ports []apiServicePort) {
	type nodePort struct {
		family, proto string
		port          int
	}
	known, all := map[nodePort]bool{}, map[string]int{}
	for i := range ports {
		p := nodePort{ports[i].Family, ports[i].Protocol, ports[i].NodePort}
		if p.port != 0 && !known[p] {
			known[p] = true
			all[p.family]++
		}
	}
	v.nodes = map[string][]netip.Addr{}
	served := map[netip.Addr]int{}
	for i := range v.Servers {
		s := &v.Servers[i]
		ip := s.Address.Addr()
		family := familyOf(ip)
		if !known[nodePort{family, s.Protocol, int(s.Address.Port())}] || !v.Local[ip] || v.Bound[ip] {
			continue
		}
		served[ip]++
		if enough := !v.isExcluded(ip) || served[ip] == all[family]; enough && !slices.Contains(v.nodes[family], ip) {
			v.nodes[family] = append(v.nodes[family], ip)
		}
	}
	for _, nodes := range v.nodes {
		sorted.By(nodes, netip.Addr.Compare)
	}
}

// service returns the virtual servers of a Service port. found reports whether its ClusterIP is served.
func (v *ipvs) service(p *apiServicePort) (s Service, found bool) {
	s = Service{Name: p.Name, Protocol: p.Protocol, Family: p.Family,
		ClusterIP: p.ClusterIP, Port: p.Port,
		InternalLocal: p.internal == "Local", ExternalLocal: p.external == "Local"}
	add := func(address string, port int, local bool) bool {
		ip, err := netip.ParseAddr(address)
		at := v.at[formatPlace(ip, port, p.Protocol)]
		if err != nil || at == nil {
			return false
		}
		s.Servers = append(s.Servers, model.Server{VirtualServer: at, Local: local, Endpoints: endpointsOf(at)})
		if local && len(s.LocalEndpoints) == 0 {
			s.LocalEndpoints = endpointsOf(at)
		}
		return true
	}
	if found = add(p.ClusterIP, p.Port, s.InternalLocal); found {
		s.AffinitySeconds, s.Endpoints = s.Servers[0].Affinity, s.Servers[0].Endpoints
	}
	for _, ip := range slices.Sorted(maps.Keys(p.outside)) {
		switch {
		case !add(ip, p.Port, s.ExternalLocal):
		case p.outside[ip] == externalAddress:
			s.ExternalIPs = append(s.ExternalIPs, ip)
		default:
			s.LoadBalancerIPs = append(s.LoadBalancerIPs, ip)
		}
	}
	for _, ip := range v.nodes[p.Family] {
		if p.NodePort != 0 && add(ip.String(), p.NodePort, s.ExternalLocal) {
			s.NodePort = p.NodePort
		}
	}
	return s, found
}

// serves reports whether a Service port may own a virtual server.
func (v *ipvs) serves(at *ruleset.VirtualServer, p *apiServicePort) bool {
	ip, port := at.Address.Addr(), int(at.Address.Port())
	if at.Protocol != p.Protocol || familyOf(ip) != p.Family {
		return false
	}
	cluster, _ := netip.ParseAddr(p.ClusterIP)
	return port == p.Port && (ip == cluster || p.outside == nil || p.outside[ip.String()] != "") || port == p.NodePort && !v.Bound[ip]
}

// endpointsOf returns the endpoints that get new connections. Schedulers whose names begin with w
// distribute by weight, the others evenly.
func endpointsOf(at *ruleset.VirtualServer) []Endpoint {
	total := 0.0
	weight := func(s ruleset.RealServer) float64 {
		if strings.HasPrefix(at.Scheduler, "w") {
			return float64(s.Weight)
		}
		return float64(min(s.Weight, 1))
	}
	for _, s := range at.Servers {
		total += weight(s)
	}
	var list []Endpoint
	for _, s := range at.Servers {
		if s.Weight > 0 {
			list = append(list, Endpoint{Address: s.Address.String(), Chance: weight(s) / total})
		}
	}
	return list
}

// serverEndpoints compares the endpoints of each virtual server of a Service port by the policy of
// its traffic, until it finds a difference.
func (c *comparison) serverEndpoints(s *Service) {
	for i, at := range s.Servers {
		if len(c.rep.ipvs.claims[at.VirtualServer]) > 1 { // it has the endpoints of the Service that was written last
			continue
		}
		d, place := c.newDifference(s), ""
		if i > 0 {
			place = fmt.Sprintf("at %s, ", at.Address)
		}
		local := d.local()
		switch {
		case at.Local && (len(local) > 0 || c.opts.NodeName == ""):
			d.compareLocal(at.Endpoints)
		case !at.Local || len(at.Endpoints) > 0: // without local endpoints, kube-proxy uses others or none
			d.compareCluster(at.Endpoints)
		}
		if c.report(s, d, place) {
			return
		}
	}
}

// differentServer compares the addresses of a Service port's virtual servers with the addresses in the API, and the clients that may use
// each address of the load balancer.
func (c *comparison) differentServer(s *Service, p *apiServicePort) (name, text string) {
	v := c.rep.ipvs
	for _, at := range s.Servers {
		if ip := at.Address.Addr(); !v.Local[ip] {
			return wrongAddress, fmt.Sprintf("%s is not on kube-ipvs0: only this node itself can connect to port %d", ip, at.Address.Port())
		}
	}
	for _, ip := range v.nodes[s.Family] {
		if s.NodePort != 0 && v.at[formatPlace(ip, s.NodePort, s.Protocol)] == nil {
			return wrongAddress, fmt.Sprintf("this node does not serve node port %d at %s, where it serves other node ports", p.NodePort, ip)
		}
	}
	for _, at := range s.Servers {
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
		if text = rangesDiffer(s, p, []string{ip}, let, closed); text != "" {
			return wrongRanges, text
		}
	}
	return "", ""
}
