package proxy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"nodegate/internal/ruleset"
)

// compareAPI compares the graph with the API. No other test finds a dead watch (kubernetes#87615), because kube-proxy itself
// then reports that it is healthy. Services that already have a finding are skipped.
func compareAPI(rep *Judgment, opts *Options, known []Finding, out *Collector) {
	if opts.Endpoints == nil && opts.Services == nil || len(rep.Services) == 0 && len(rep.Families) == 0 {
		return // nothing to compare with, or a finding already explains why nothing was judged
	}
	if rep.ipvs != nil {
		if opts.Services == nil {
			return
		}
		rep.nameServices(opts.Services.list)
	}
	rep.findUnserved(opts, out)
	c := newComparison(rep, opts, known, out)
	c.compareServices()
	for i := range rep.Services {
		s := &rep.Services[i]
		if c.broken[s.Name+" "+s.Family] || c.stale[keyOf(s)] {
			continue
		}
		c.compareEndpoints(s)
	}
	c.healthPorts()
}

// Compare returns the differences between the API and rules that were judged alone. The result equals that of Judge with both.
func Compare(rep *Judgment, opts Options) []Finding {
	out := NewCollector()
	compareAPI(rep, &opts, rep.Findings, out)
	return out.List
}

func newComparison(rep *Judgment, opts *Options, known []Finding, out *Collector) comparison {
	c := comparison{rep: rep, opts: opts, out: out, inRules: map[apiServiceKey]*Service{}, broken: map[string]bool{},
		stale: map[apiServiceKey]bool{}, hairpins: map[string]bool{}}
	for i := range known {
		if known[i].Explains() {
			c.broken[known[i].Service+" "+known[i].Family] = true
		}
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

	hairpins map[string]bool // connections that set hairpin-connections lacks and that one Service already reports
}

type apiServiceKey struct{ name, proto, family string }

func keyOf(s *Service) apiServiceKey { return apiServiceKey{s.Name, s.Protocol, s.Family} }

func (c *comparison) addFinding(name string, s *Service, format string, args ...any) {
	c.out.Add(Finding{Name: name, Service: s.Name, Family: s.Family, Message: fmt.Sprintf(format, args...)})
}

// compareServices compares the list of Services and their addresses.
func (c *comparison) compareServices() {
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
		key := apiServiceKey{formatServicePort(p.namespace, p.name, p.port), p.proto, p.family}
		inAPI[key] = true
		s := c.inRules[key]
		switch {
		case c.broken[key.name+" "+key.family]:
		case s == nil && p.unsure && c.rep.Version.Min < 36:
		case s == nil && c.rep.Mode == "nftables" && len(key.name) >= longestComment:
			// without endpoints, the rules contain only a part of its name
		case s == nil:
			c.addFinding("kubeproxy.truth.service-missing", &Service{Name: key.name, Family: key.family},
				"the API has this Service at %s:%d (%s), but this node does not serve it", p.clusterIP, p.number, p.proto)
		case s.ClusterIP != "" && (s.ClusterIP != p.clusterIP || s.Port != p.number):
			c.addFinding("kubeproxy.truth.service-address", s, "this node serves %s:%d, the API has %s:%d",
				s.ClusterIP, s.Port, p.clusterIP, p.number)
			c.stale[key] = true
		case s.ClusterIP == "" && c.knowsForm() && c.rep.all().filtered[key.family] && len(key.name) < longestComment:
			c.addFinding("kubeproxy.truth.service-address", s,
				"the API has ClusterIP %s, port %d; the rules neither send it to endpoints nor reject it", p.clusterIP, p.number)
			c.stale[key] = true
		case s.NodePort != 0 && s.NodePort != p.nodePort:
			c.addFinding("kubeproxy.truth.service-address", s, "this node serves node port %d, the API has %s", s.NodePort, nodePort(p.nodePort))
			c.stale[key] = true
		default:
			c.compareService(s, p)
		}
	}
	for i := range c.rep.Services {
		s := &c.rep.Services[i]
		if !inAPI[keyOf(s)] && !c.broken[s.Name+" "+s.Family] {
			n := len(s.Endpoints) + len(s.LocalEndpoints)
			if c.rep.ipvs != nil && s.NodePort != 0 {
				c.addFinding("kubeproxy.truth.service-stale", s,
					"this node still serves node port %d at %s (%d endpoints), which no Service in the API uses",
					s.NodePort, s.ClusterIP, n)
			} else {
				c.addFinding("kubeproxy.truth.service-stale", s,
					"this node still serves %s:%d (%d endpoints) for a Service that the API no longer has", s.ClusterIP, s.Port, n)
			}
			c.stale[keyOf(s)] = true
		}
	}
}

// findUnserved reports the address families in which the API has Services but a live node lacks rules. The comparison
// skips their Services, because no rules were judged.
//
// kube-proxy does not start if its node lacks the primary family of the cluster, which is the family of Service default/kubernetes
// (newProxyServer of cmd/kube-proxy/app/server.go). If the node lacks another family, kube-proxy never writes rules for it
// (platformCheckSupported of server_linux.go). Only its metrics, from 1.33, show whether it serves a family.
func (r *Judgment) findUnserved(opts *Options, out *Collector) {
	if opts.Wrote == nil || len(r.Families) == 0 {
		return
	}
	ports, primary := opts.families(r.Version)
	for _, family := range slices.Sorted(maps.Keys(ports)) {
		if r.Families[family] || slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Family == family && f.Service == "" }) {
			continue
		}
		wrote, known := opts.Wrote(family)
		text := fmt.Sprintf("no kube-proxy rules for %s, although the API has Services in this family (%d ports)",
			map[string]string{ruleset.IPv4: "IPv4", ruleset.IPv6: "IPv6"}[family], ports[family])
		switch note := text + ": not compared; this is correct only if the node lacks the family"; {
		case known && !wrote:
			out.Add(Finding{Name: "kubeproxy.table.unwritten", Family: family,
				Message: text + "; its metrics show that it has written none since it started"})
		case known || family == primary:
			out.Add(Finding{Name: "kubeproxy.truth.family-missing", Family: family, Message: text})
		case !slices.Contains(r.Notes, note):
			r.Notes = append(r.Notes, note)
		}
	}
}

// families counts the Service ports in the API that kube-proxy certainly serves, by address family. It also returns the
// family of default/kubernetes, which is the family of the API server's own address (cmd/kube-apiserver validates that).
func (o *Options) families(v VersionRange) (ports map[string]int, primary string) {
	ports = map[string]int{}
	if o.Services == nil {
		for name, api := range o.Endpoints.services {
			for port, eps := range api.ports {
				if name == "default/kubernetes" {
					primary = port.family
				}
				if api.managed && !api.ignored && len(expectEndpoints(eps, "", "").ready) > 0 || name == "default/kubernetes" {
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

// Unserved adds findings about the address families in which the report has no rules and the API now has Services.
func (v *Versions) Unserved(rep *Judgment, live Live) {
	if len(rep.Families) > 1 {
		return // avoids one lookup for each Service
	}
	all := &Services{}
	for _, s := range v.objects {
		all.add(s)
	}
	out := NewCollector()
	rep.findUnserved(&Options{Services: all, Live: live}, out)
	rep.Findings = append(rep.Findings, out.List...)
}

func nodePort(n int) string {
	if n == 0 {
		return "none"
	}
	return fmt.Sprint(n)
}

// servicesBySlices compares as far as EndpointSlices alone allow. A Service is missing only if the EndpointSlice
// controller's own slices show that it is neither headless nor another proxy's. A Service is stale only if the rules have
// endpoints and the API has no slice of it.
func (c *comparison) servicesBySlices() {
	for _, name := range slices.Sorted(maps.Keys(c.opts.Endpoints.services)) {
		api := c.opts.Endpoints.services[name]
		if !api.managed || api.ignored {
			continue
		}
		for port, eps := range api.ports {
			ns, svc, _ := SplitServicePort(name)
			key := apiServiceKey{formatServicePort(ns, svc, port.name), port.proto, port.family}
			if c.inRules[key] != nil || !c.rep.Families[port.family] || c.broken[key.name+" "+key.family] ||
				len(expectEndpoints(eps, "", "").ready) == 0 {
				continue
			}
			c.addFinding("kubeproxy.truth.service-missing", &Service{Name: key.name, Family: key.family},
				"the API has %d endpoints (%s) for this Service, but this node does not serve it", len(eps), key.proto)
		}
	}
	for i := range c.rep.Services {
		s := &c.rep.Services[i]
		ns, name, _ := SplitServicePort(s.Name)
		if c.opts.Endpoints.services[ns+"/"+name] == nil && len(s.Endpoints)+len(s.LocalEndpoints) > 0 && !c.broken[s.Name+" "+s.Family] {
			c.addFinding("kubeproxy.truth.service-stale", s,
				"this node still serves %s:%d (%d endpoints); the API has no EndpointSlice for this Service", s.ClusterIP, s.Port,
				len(s.Endpoints)+len(s.LocalEndpoints))
			c.stale[keyOf(s)] = true
		}
	}
}

// healthPorts checks the ports on which kube-proxy answers the health checks of load balancers. With
// externalTrafficPolicy Local, load balancers query each node for local endpoints. If node ports are served at no address
// of this node, kube-proxy does not listen on these ports.
func (c *comparison) healthPorts() {
	listening := c.opts.Listening
	if c.opts.Services == nil || listening == nil {
		return
	}
	for i := range c.opts.Services.list {
		p := &c.opts.Services.list[i]
		key := apiServiceKey{formatServicePort(p.namespace, p.name, p.port), p.proto, p.family}
		s := c.inRules[key]
		if p.health == 0 || s == nil || c.broken[key.name+" "+key.family] || c.stale[key] || !c.rep.all().NodePorts[p.family] {
			continue
		}
		open, err := listening()
		switch {
		case err != nil:
			c.addFinding("kubeproxy.healthport.unread", s,
				"could not determine whether kube-proxy listens on health check node port %d: %v", p.health, err)
			return // the same error applies to all ports
		case open == nil, open[uint16(p.health)]:
		default:
			c.out.Add(Finding{Name: "kubeproxy.healthport.closed", Service: s.Name, Family: s.Family,
				Message: fmt.Sprintf("kube-proxy does not listen on health check node port %d: the load balancer assumes that this node "+
					"has no endpoints, and sends it no traffic", p.health),
				Remedy: fmt.Sprintf("find the process that uses the port: `ss -ltnp 'sport = :%d'`; kube-proxy logs the error as \"failed to start "+
					"healthcheck\". Free the port, or set another healthCheckNodePort; kube-proxy retries at the next change of any Service or "+
					"EndpointSlice and needs no restart", p.health)})
		}
	}
}

// compareEndpoints compares the endpoints of one Service, for each chain by the chain's policy.
func (c *comparison) compareEndpoints(s *Service) {
	if c.opts.Endpoints == nil {
		return
	}
	ns, name, port := SplitServicePort(s.Name)
	var eps []apiEndpoint
	if api := c.opts.Endpoints.services[ns+"/"+name]; api != nil {
		eps = api.ports[apiPort{port, s.Protocol, s.Family}]
	}
	e := expectEndpoints(eps, c.opts.NodeName, c.opts.Zone)
	if c.rep.ipvs != nil {
		c.serverEndpoints(s, &e)
		return
	}
	external := s.NodePort != 0 || len(s.ExternalIPs)+len(s.LoadBalancerIPs) > 0
	d := newDifference(&e)
	d.findHairpins(c, s, eps)
	if !s.InternalLocal || external {
		d.compareCluster(s, c.rep.Version)
	}
	if s.InternalLocal || s.ExternalLocal {
		d.compareLocal(s, c.rep.Version)
	}
	d.report(c, s)
}

// formatSet formats the first elements of a set.
func formatSet(set map[string]bool) string { return formatFirst(slices.Sorted(maps.Keys(set))) }

func formatFirst(list []string) string {
	if len(list) > 5 {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:5], ", "), len(list)-5)
	}
	return strings.Join(list, ", ")
}
