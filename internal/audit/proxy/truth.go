package proxy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"nodegate/internal/audit/model"
	"nodegate/internal/ruleset"
)

// compareAPI compares the Services that the rules show with the API's. No other test finds a dead watch (kubernetes#87615), because
// kube-proxy itself then reports that it is healthy. Services that already have a finding are skipped.
func compareAPI(rep *Judgment, opts *Options, known []Finding, out *Collector) {
	if opts.Services == nil || len(rep.Services) == 0 && len(rep.Families) == 0 {
		return // nothing to compare with, or a finding already explains why nothing was judged
	}
	wanted := opts.Services.ports()
	if rep.ipvs != nil {
		rep.nameServices(wanted)
	}
	rep.findUnserved(wanted, opts.Live, out)
	rep.compareWith(opts, wanted, known, out)
}

// Compare returns the differences between the API and rules that were judged alone. The result equals Judge's with both.
func Compare(rep *Judgment, opts Options) []Finding {
	out := NewCollector()
	compareAPI(rep, &opts, rep.Findings, out)
	return out.List
}

// apiServiceKey identifies a Service port in one address family.
type apiServiceKey struct{ name, proto, family string }

func keyOf(s *Service) apiServiceKey { return apiServiceKey{s.Name, s.Protocol, s.Family} }

// service returns ns/name.
func (k apiServiceKey) service() string { return ServicePort{Name: k.name}.Service() }

type comparison struct {
	rep      *Judgment
	opts     *Options
	out      *Collector
	inRules  map[apiServiceKey]*Service // those that are not compared yet
	hairpins map[string]bool            // connections that set hairpin-connections lacks and that one Service already reports
}

func (c *comparison) add(name string, s *Service, format string, args ...any) {
	c.out.Add(Finding{Name: name, Service: s.Name, Family: s.Family, Message: fmt.Sprintf(format, args...)})
}

// optional reports whether kube-proxy may leave out a Service port of the API.
func (r *Judgment) optional(p *apiServicePort) bool {
	return p.unsure && r.Version.Min < 36
}

// compareWith compares the Services of the report with the API's, except those with a known fault.
func (r *Judgment) compareWith(opts *Options, wanted []apiServicePort, known []Finding, out *Collector) {
	c := comparison{rep: r, opts: opts, out: out, inRules: map[apiServiceKey]*Service{}, hairpins: map[string]bool{}}
	broken := (&Judgment{Findings: known}).Broken()
	for i := range r.Services {
		if s := &r.Services[i]; !broken[ServicePort{s.Name, s.Family}] {
			c.inRules[keyOf(s)] = s
		}
	}
	for i := range wanted {
		p := &wanted[i]
		s := c.inRules[keyOf(&p.Service)]
		delete(c.inRules, keyOf(&p.Service))
		switch {
		case !r.Families[p.Family] || broken[ServicePort{p.Name, p.Family}]:
		case s == nil && (r.optional(p) || r.Mode == "nftables" && len(p.Name) >= model.LongestComment):
			// without endpoints, the rules of nftables mode contain only a part of a long name
		case s == nil:
			c.add("kubeproxy.truth.service-missing", &p.Service,
				"the API has this Service at %s:%d (%s), but this node does not serve it", p.ClusterIP, p.Port, p.Protocol)
		default:
			if name, text := c.differentField(s, p); name != "" {
				c.add(name, s, "%s", text)
			} else {
				c.compareEndpoints(s)
			}
		}
	}
	for i := range r.Services {
		s := &r.Services[i]
		n := len(s.Endpoints) + len(s.LocalEndpoints)
		switch {
		case c.inRules[keyOf(s)] != s: // compared, or known to be broken
		case r.ipvs != nil && s.NodePort != 0:
			c.add("kubeproxy.truth.service-stale", s,
				"this node still serves node port %d at %s (%d endpoints), which no Service in the API uses", s.NodePort, s.ClusterIP, n)
		default:
			c.add("kubeproxy.truth.service-stale", s,
				"this node still serves %s:%d (%d endpoints) for a Service that the API no longer has", s.ClusterIP, s.Port, n)
		}
	}
}

const (
	wrongAddress = "kubeproxy.truth.service-address"
	wrongPolicy  = "kubeproxy.truth.service-policy"
	wrongRanges  = "kubeproxy.truth.source-ranges"
)

func differs(field string, want, have any) string {
	return fmt.Sprintf("%s: %v in the API; %v on this node", field, want, have)
}

// differentField returns the kind and the text of the first field of a Service port that differs, or "". Without endpoints, the
// rules show little of a Service.
func (c *comparison) differentField(s *Service, p *apiServicePort) (name, text string) {
	r, ipvs := c.rep, c.rep.ipvs != nil
	rejects := !ipvs && r.filtered[s.Family] && len(s.Name) < model.LongestComment // the rules show a Service without endpoints
	served := dispatches(s) || s.Blocked == "reject" && rejects
	endpoints := s.Blocked == "" && len(s.Endpoints)+len(s.LocalEndpoints) > 0
	switch {
	case s.ClusterIP == "" && rejects, s.ClusterIP != "" && (s.ClusterIP != p.ClusterIP || s.Port != p.Port):
		have := fmt.Sprintf("%s:%d", s.ClusterIP, s.Port)
		return wrongAddress, differs("the ClusterIP", fmt.Sprintf("%s:%d", p.ClusterIP, p.Port), or(s.ClusterIP != "", have))
	case s.NodePort != 0 && s.NodePort != p.NodePort:
		return wrongAddress, differs("the node port", or(p.NodePort != 0, p.NodePort), s.NodePort)
	case !ipvs && s.ClusterIP == "":
		return "", ""
	case s.NodePort == 0 && p.NodePort != 0 && served && (!ipvs || r.NodePorts[s.Family]):
		return wrongAddress, differs("the node port", p.NodePort, "none")
	}
	if ip, what := c.differentAddress(s, p); ip != "" {
		have := "not served"
		if what == "" || slices.Contains(s.ExternalIPs, ip) || slices.Contains(s.LoadBalancerIPs, ip) {
			what, have = "not an address of the Service", "served"
		}
		return wrongAddress, differs(fmt.Sprintf("address %s, port %d", ip, p.Port), what, have)
	}
	if ipvs {
		if name, text = c.differentServer(s, p); name != "" {
			return name, text
		}
	} else if text = c.differentRanges(s, p); text != "" {
		return wrongRanges, text
	}
	external, internal := policy(s.ExternalLocal), policy(s.InternalLocal)
	outside := s.NodePort != 0 || len(s.ExternalIPs)+len(s.LoadBalancerIPs) > 0
	switch timeout := p.AffinitySeconds; {
	case !ipvs && p.external != "" && p.external != external && outside && len(s.Endpoints) > 0:
		return wrongPolicy, differs("externalTrafficPolicy", p.external, external)
	case !ipvs && p.internal != "" && p.internal != internal && (s.InternalLocal || dispatches(s)):
		return wrongPolicy, differs("internalTrafficPolicy", p.internal, internal)
	case p.affinity == "None" && s.AffinitySeconds != 0, p.affinity == "ClientIP" && s.AffinitySeconds == 0 && endpoints,
		p.affinity == "ClientIP" && s.AffinitySeconds != 0 && timeout != 0 && timeout != s.AffinitySeconds:
		return wrongPolicy, differs("sessionAffinity", or(p.affinity != "None", fmt.Sprintf("ClientIP (%d s)", timeout)),
			or(s.AffinitySeconds != 0, fmt.Sprintf("ClientIP (%d s)", s.AffinitySeconds)))
	case p.Health != 0 && p.Health != s.Health && r.Mode == "iptables" && r.filtered[s.Family]:
		return wrongAddress, differs("the health check node port that table filter accepts", p.Health, or(s.Health != 0, s.Health))
	}
	return "", ""
}

// or returns a value, or "none" if it is not known.
func or(known bool, value any) any {
	if !known {
		return "none"
	}
	return value
}

func policy(local bool) string { return map[bool]string{true: "Local", false: "Cluster"}[local] }

// dispatches reports whether the rules have endpoints for external traffic.
func dispatches(s *Service) bool { return s.Blocked == "" && len(s.Endpoints) > 0 }

// differentAddress returns an address other than the ClusterIP that is either served or in the API, and its kind there.
func (c *comparison) differentAddress(s *Service, p *apiServicePort) (ip, what string) {
	have := slices.Concat(s.ExternalIPs, s.LoadBalancerIPs)
	if p.outside == nil || len(have) >= maxAddresses {
		return "", ""
	}
	for _, ip := range have {
		if what := p.outside[ip]; what == "" || what == proxiedAddress && c.rep.Version.Min >= 30 {
			return ip, what
		}
	}
	for _, ip := range slices.Sorted(maps.Keys(p.outside)) {
		what := p.outside[ip]
		ignored := what == proxiedAddress || what == externalAddress && c.opts.NoExternalIPs
		if !slices.Contains(have, ip) && !ignored && !c.rep.isTaken(ip, s) {
			return ip, what
		}
	}
	return "", ""
}

// isTaken reports whether the rules assign an address and port of a Service to another Service that also requests it.
func (r *Judgment) isTaken(ip string, by *Service) bool {
	all := r.Services
	if r.others != nil {
		all = r.others
	}
	return slices.ContainsFunc(all, func(s Service) bool {
		return s.Name != by.Name && s.Port == by.Port && s.Protocol == by.Protocol &&
			(s.ClusterIP == ip || slices.Contains(s.ExternalIPs, ip) || slices.Contains(s.LoadBalancerIPs, ip))
	})
}

// differentRanges compares the clients that may use the load balancer's addresses. If one of the ranges contains the node's own address,
// the rules also admit these addresses themselves. From 1.30, kube-proxy does not enforce ranges for addresses that the load balancer
// answers itself (ipMode Proxy). Rules of 1.30 may look older, so such addresses count only if the rules contain them.
func (c *comparison) differentRanges(s *Service, p *apiServicePort) string {
	var own, open []string // open: served, but without the chain of the ranges
	for _, ip := range slices.Sorted(maps.Keys(p.outside)) {
		ranged := slices.Contains(s.LoadBalancerIPs, ip)
		if what := p.outside[ip]; what == balancerAddress || what == proxiedAddress && ranged {
			if own = append(own, ip); !ranged && slices.Contains(s.ExternalIPs, ip) {
				open = append(open, ip)
			}
		}
	}
	return cmp.Or(rangesDiffer(s, p, own, s.SourceRanges, len(s.SourceRanges) > 0), rangesDiffer(s, p, open, nil, false))
}

// rangesDiffer compares the ranges that the rules admit to the load balancer's own addresses with the API. closed reports whether the
// rules restrict access. Some versions write a range that contains all addresses.
func rangesDiffer(s *Service, p *apiServicePort, own, let []string, closed bool) string {
	if len(own) == 0 {
		return ""
	}
	sources := p.SourceRanges
	if containsAll(let) {
		let, closed = nil, false
	}
	if containsAll(sources) {
		sources = nil
	}
	got, readable := ruleset.Spans(slices.Concat(let, own))
	asked, _ := ruleset.Spans(slices.Concat(sources, own))
	if !readable || slices.Equal(got, asked) && closed == (len(sources) > 0) || len(sources) > 0 && !closed && !dispatches(s) {
		return ""
	}
	clients := func(list []string, closed bool) string {
		switch {
		case !closed:
			return "all clients"
		case len(list) == 0:
			return "no clients"
		}
		return formatFirst(list)
	}
	field := "loadBalancerSourceRanges for " + strings.Join(own, ", ")
	return differs(field, clients(sources, len(sources) > 0), clients(let, closed))
}

// containsAll reports whether ranges contain all addresses.
func containsAll(ranges []string) bool {
	all, _ := ruleset.Spans(ranges)
	return len(all) == 1 && all[0].First.IsUnspecified() && !all[0].Last.Next().IsValid()
}

// findUnserved reports the address families in which the API has Services but a live node lacks rules. The comparison
// skips their Services, because no rules were judged.
//
// kube-proxy does not start if its node lacks the primary family of the cluster, which is the family of Service default/kubernetes
// (newProxyServer of cmd/kube-proxy/app/server.go; cmd/kube-apiserver validates that it is the family of the API server's own address). If
// the node lacks another family, kube-proxy never writes rules for it (platformCheckSupported of server_linux.go). Only its metrics, from
// 1.33, show whether it serves a family.
func (r *Judgment) findUnserved(wanted []apiServicePort, live Live, out *Collector) {
	if live.Wrote == nil || len(r.Families) == 0 {
		return
	}
	ports, primary := map[string]int{}, ""
	for i := range wanted {
		p := &wanted[i]
		first := keyOf(&p.Service).service() == "default/kubernetes"
		if first {
			primary = p.Family
		}
		if first || !r.optional(p) {
			ports[p.Family]++
		}
	}
	for _, family := range slices.Sorted(maps.Keys(ports)) {
		if r.Families[family] || slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Family == family && f.Service == "" }) {
			continue
		}
		wrote, known := live.Wrote(family)
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

// formatSet formats the first elements of a set.
func formatSet(set map[string]bool) string { return formatFirst(slices.Sorted(maps.Keys(set))) }

func formatFirst(list []string) string {
	if len(list) > 5 {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:5], ", "), len(list)-5)
	}
	return strings.Join(list, ", ")
}
