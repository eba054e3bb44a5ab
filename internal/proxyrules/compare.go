package proxyrules

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"nodegate/internal/ruleset"
)

// compare compares the graph with the API. It is the only test that finds a dead watch (kubernetes#87615): kube-proxy itself
// reports healthy then. Services that known findings are about are passed over.
func compare(rep *Judgment, opts *Options, known []Finding, out *Collector) {
	if opts.Endpoints == nil && opts.Services == nil || len(rep.Services) == 0 && len(rep.Families) == 0 {
		return // nothing to compare with, or nothing was judged, which is a finding already
	}
	if rep.ipvs != nil {
		if opts.Services == nil {
			return
		}
		rep.name(opts.Services.list)
	}
	rep.unserved(opts, out)
	c := newComparison(rep, opts, known, out)
	c.services()
	for i := range rep.Services {
		s := &rep.Services[i]
		if c.broken[s.Name+" "+s.Family] || c.stale[keyOf(s)] {
			continue
		}
		c.endpoints(s)
	}
	c.healthPorts()
}

// Compare returns how rules that were judged alone differ from the API, as Judge finds it with both.
func Compare(rep *Judgment, opts Options) []Finding {
	out := NewCollector()
	compare(rep, &opts, rep.Findings, out)
	return out.List
}

func newComparison(rep *Judgment, opts *Options, known []Finding, out *Collector) comparison {
	c := comparison{rep: rep, opts: opts, out: out, inRules: map[apiServiceKey]*Service{}, broken: map[string]bool{},
		stale: map[apiServiceKey]bool{}}
	for i := range known {
		c.broken[known[i].Service+" "+known[i].Family] = true
	}
	for i := range rep.Services {
		s := &rep.Services[i]
		c.inRules[keyOf(s)] = s
	}
	return c
}

type comparison struct {
	rep     *Judgment
	opts    *Options
	out     *Collector
	inRules map[apiServiceKey]*Service
	broken  map[string]bool
	stale   map[apiServiceKey]bool
}

type apiServiceKey struct{ name, proto, family string }

func keyOf(s *Service) apiServiceKey { return apiServiceKey{s.Name, s.Protocol, s.Family} }

func (c *comparison) find(name string, s *Service, format string, args ...any) {
	c.out.Add(Finding{Name: name, Service: s.Name, Family: s.Family, Message: fmt.Sprintf(format, args...)})
}

// services compares which Services there are and where.
func (c *comparison) services() {
	if c.opts.Services == nil {
		c.servicesBySlices()
		return
	}
	inAPI := map[apiServiceKey]bool{}
	for i := range c.opts.Services.list {
		p := &c.opts.Services.list[i]
		if !c.rep.Families[p.family] {
			continue
		}
		key := apiServiceKey{servicePort(p.namespace, p.name, p.port), p.proto, p.family}
		inAPI[key] = true
		s := c.inRules[key]
		switch {
		case c.broken[key.name+" "+key.family]:
		case s == nil && p.unsure && c.rep.Version.Min < 36:
		case s == nil && c.rep.Mode == "nftables" && len(key.name) >= longestComment: // without endpoints, the rules have not all of its name
		case s == nil:
			c.find("kubeproxy.truth.service-missing", &Service{Name: key.name, Family: key.family},
				"it is at %s:%d (%s) in the API; this node does not answer there", p.clusterIP, p.number, p.proto)
		case s.ClusterIP != "" && (s.ClusterIP != p.clusterIP || s.Port != p.number):
			c.find("kubeproxy.truth.service-address", s, "this node answers at %s:%d, the Service is at %s:%d in the API",
				s.ClusterIP, s.Port, p.clusterIP, p.number)
			c.stale[key] = true
		case s.NodePort != 0 && s.NodePort != p.nodePort:
			c.find("kubeproxy.truth.service-address", s, "this node answers at node port %d, which is %s in the API",
				s.NodePort, nodePort(p.nodePort))
			c.stale[key] = true
		default:
			c.service(s, p)
		}
	}
	for i := range c.rep.Services {
		s := &c.rep.Services[i]
		if !inAPI[keyOf(s)] && !c.broken[s.Name+" "+s.Family] {
			n := len(s.Endpoints) + len(s.LocalEndpoints)
			if c.rep.ipvs != nil && s.NodePort != 0 {
				c.find("kubeproxy.truth.service-stale", s, "this node still answers node port %d at %s (%d endpoints), which no Service of the API has",
					s.NodePort, s.ClusterIP, n)
			} else {
				c.find("kubeproxy.truth.service-stale", s,
					"this node still takes what is sent to %s:%d (%d endpoints), of a Service that the API no longer has", s.ClusterIP, s.Port, n)
			}
			c.stale[keyOf(s)] = true
		}
	}
}

// unserved finds an address family in which the API has Services and a live node no rules at all: its Services are passed over, since
// nothing of it was judged. kube-proxy does not start where its node lacks the family of the cluster (newProxyServer of
// cmd/kube-proxy/app/server.go), and so that of the Service default/kubernetes. Of another family it writes nothing where the node does not
// have that (platformCheckSupported of server_linux.go), for ever: only its metrics, from 1.33, tell whether it does.
func (r *Judgment) unserved(opts *Options, out *Collector) {
	if r.Wrote == nil || len(r.Families) == 0 {
		return
	}
	ports, primary := opts.families(r.Version)
	for _, family := range slices.Sorted(maps.Keys(ports)) {
		if r.Families[family] || slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Family == family && f.Service == "" }) {
			continue
		}
		wrote, known := r.Wrote(family)
		text := fmt.Sprintf("no rules of kube-proxy for %s, in which the API has Services (%d ports)",
			map[string]string{ruleset.IPv4: "IPv4", ruleset.IPv6: "IPv6"}[family], ports[family])
		switch note := text + ": not compared; right only where this node is without it"; {
		case known && !wrote:
			out.Add(Finding{Name: "kubeproxy.table.unwritten", Family: family,
				Message: text + "; it has written none since it started, as its metrics say"})
		case known || family == primary:
			out.Add(Finding{Name: "kubeproxy.truth.family-missing", Family: family, Message: text})
		case !slices.Contains(r.Notes, note):
			r.Notes = append(r.Notes, note)
		}
	}
}

// families counts the Service ports of the API that kube-proxy serves for certain, by address family, and returns the family of
// default/kubernetes. An API server's own address is of the same one as the ClusterIP of that Service (cmd/kube-apiserver validates it).
func (o *Options) families(v VersionRange) (ports map[string]int, primary string) {
	ports = map[string]int{}
	if o.Services == nil {
		for name, api := range o.Endpoints.services {
			for port, eps := range api.ports {
				if name == "default/kubernetes" {
					primary = port.family
				}
				if api.managed && !api.ignored && len(expect(eps, "", "").ready) > 0 || name == "default/kubernetes" {
					ports[port.family]++
				}
			}
		}
		return ports, primary
	}
	for i := range o.Services.list {
		p := &o.Services.list[i]
		if p.namespace == "default" && p.name == "kubernetes" {
			primary = p.family
		}
		if !p.unsure || v.Min >= 36 {
			ports[p.family]++
		}
	}
	return ports, primary
}

// Unserved adds to the findings of the report the address families in which it has no rules and the API has Services now.
func (v *Versions) Unserved(rep *Judgment) {
	if len(rep.Families) > 1 {
		return // not one look at each Service
	}
	all := &Services{}
	for _, s := range v.objects {
		all.add(s)
	}
	out := NewCollector()
	rep.unserved(&Options{Services: all}, out)
	rep.Findings = append(rep.Findings, out.List...)
}

func nodePort(n int) string {
	if n == 0 {
		return "none"
	}
	return fmt.Sprint(n)
}

// servicesBySlices does what slices alone allow. A Service is missing only if the controller's own slices show that it is
// neither headless nor another proxy's; it is stale only if it has endpoints and not one slice.
func (c *comparison) servicesBySlices() {
	for _, name := range slices.Sorted(maps.Keys(c.opts.Endpoints.services)) {
		api := c.opts.Endpoints.services[name]
		if !api.managed || api.ignored {
			continue
		}
		for port, eps := range api.ports {
			ns, svc, _ := SplitServicePort(name)
			key := apiServiceKey{servicePort(ns, svc, port.name), port.proto, port.family}
			if c.inRules[key] != nil || !c.rep.Families[port.family] || c.broken[key.name+" "+key.family] ||
				len(expect(eps, "", "").ready) == 0 {
				continue
			}
			c.find("kubeproxy.truth.service-missing", &Service{Name: key.name, Family: key.family},
				"it has %d endpoints (%s) in the API; this node does not answer for it", len(eps), key.proto)
		}
	}
	for i := range c.rep.Services {
		s := &c.rep.Services[i]
		ns, name, _ := SplitServicePort(s.Name)
		if c.opts.Endpoints.services[ns+"/"+name] == nil && len(s.Endpoints)+len(s.LocalEndpoints) > 0 && !c.broken[s.Name+" "+s.Family] {
			c.find("kubeproxy.truth.service-stale", s,
				"this node still takes what is sent to %s:%d (%d endpoints); the API has no EndpointSlice of it", s.ClusterIP, s.Port,
				len(s.Endpoints)+len(s.LocalEndpoints))
			c.stale[keyOf(s)] = true
		}
	}
}

// healthPorts compares where kube-proxy listens for the health checks of load balancers: with externalTrafficPolicy Local they ask each
// node whether it has endpoints. Where node ports are answered at no address of this node, kube-proxy listens nowhere either.
func (c *comparison) healthPorts() {
	listening := c.rep.all().Listening
	if c.opts.Services == nil || listening == nil {
		return
	}
	for i := range c.opts.Services.list {
		p := &c.opts.Services.list[i]
		key := apiServiceKey{servicePort(p.namespace, p.name, p.port), p.proto, p.family}
		s := c.inRules[key]
		if p.health == 0 || s == nil || c.broken[key.name+" "+key.family] || c.stale[key] || !c.rep.all().NodePorts[p.family] {
			continue
		}
		open, err := listening()
		switch {
		case err != nil:
			c.find("kubeproxy.healthport.unread", s, "whether kube-proxy listens on health check node port %d could not be seen: %v", p.health, err)
			return // so it is with all
		case open == nil, open[uint16(p.health)]:
		default:
			c.out.Add(Finding{Name: "kubeproxy.healthport.closed", Service: s.Name, Family: s.Family,
				Message: fmt.Sprintf("kube-proxy does not listen on health check node port %d: the load balancer takes this node for one "+
					"without endpoints, and sends it nothing", p.health),
				Remedy: fmt.Sprintf("see who has the port: ss -ltnp 'sport = :%d'; kube-proxy's log says why it fails (failed to start healthcheck). "+
					"Free the port, or give the Service another healthCheckNodePort: kube-proxy tries again at the next change of any Service or "+
					"EndpointSlice, and need not be restarted", p.health)})
		}
	}
}

// endpoints compares one Service's endpoints, in each chain by its own policy.
func (c *comparison) endpoints(s *Service) {
	if c.opts.Endpoints == nil {
		return
	}
	ns, name, port := SplitServicePort(s.Name)
	var eps []apiEndpoint
	if api := c.opts.Endpoints.services[ns+"/"+name]; api != nil {
		eps = api.ports[apiPort{port, s.Protocol, s.Family}]
	}
	e := expect(eps, c.opts.NodeName, c.opts.Zone)
	if c.rep.ipvs != nil {
		c.serverEndpoints(s, &e)
		return
	}
	external := s.NodePort != 0 || len(s.ExternalIPs)+len(s.LoadBalancerIPs) > 0
	d := newDifference(&e)
	if !s.InternalLocal || external {
		d.compareCluster(s, c.rep.Version)
	}
	if s.InternalLocal || s.ExternalLocal {
		d.compareLocal(s, c.rep.Version)
	}
	d.report(c, s)
}

// few lists the first of many.
func few(set map[string]bool) string { return first(slices.Sorted(maps.Keys(set))) }

func first(list []string) string {
	if len(list) > 5 {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:5], ", "), len(list)-5)
	}
	return strings.Join(list, ", ")
}
