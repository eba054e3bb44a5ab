package proxyrules

import (
	"net"
	"strings"

	"nodegate/internal/ruleset"
)

// judgeService judges the chains of one Service.
func (a *nftAudit) judgeService(n *nftNode) {
	if c := n.service; c != nil && (len(c.Rules) > 0 || c.refs > 0) {
		n.out.Endpoints = a.judgeDispatch(n, c)
	}
	if c := n.local; c != nil && (len(c.Rules) > 0 || c.refs > 0) {
		n.out.LocalEndpoints = a.judgeDispatch(n, c)
	}
	if c := n.external; c != nil && (len(c.Rules) > 0 || c.refs > 0) {
		a.judgeExternal(n)
	}
}

// judgeDispatch: a Service's chain is a MARK rule (until 1.35), affinity rules and one rule that chooses by numgen: N is the
// number of entries and their keys are 0 to N-1. From 1.37 it translates to a single endpoint without a choice.
func (a *nftAudit) judgeDispatch(n *nftNode, c *nftChain) []Endpoint {
	if c.blamed {
		return nil
	}
	var dispatch, mark *ruleset.NFTRule
	var affinity []*ruleset.NFTRule
	for _, r := range c.Rules {
		kind, _, _ := nftKind(r.Target)
		switch {
		case marks(r) && dispatch == nil && len(affinity) == 0:
			mark = r
		case kind == "endpoint" && strings.HasPrefix(r.Source, "@") && dispatch == nil:
			affinity = append(affinity, r)
		case r.Entries != nil && dispatch == nil && r.Random:
			dispatch = r
		case r.To != "" && dispatch == nil && r.Update == "" && len(affinity) == 0 && a.version.Max >= 37:
			dispatch = onlyEndpoint(r)
		case marks(r) || kind == "endpoint" && r.Source != "":
			a.about("kubeproxy.dispatch.order", c, r, n, "the rule comes too late: the connection was dispatched before it")
			return nil
		default:
			a.about("kubeproxy.chain.unexpected-rule", c, r, n, "kube-proxy writes no such rule into %s", c.Name)
			return nil
		}
	}
	a.judgeMarkRule(n, c, mark)
	switch {
	case dispatch == nil:
		a.about("kubeproxy.dispatch.empty", c, nil, n, "%s leads to no endpoint", c.Name)
		return nil
	case dispatch.Source != "" || dispatch.Destination != "" || dispatch.Other || dispatch.Protocol != "" && dispatch.Protocol != n.proto:
		a.about("kubeproxy.dispatch.condition", c, dispatch, n, "dispatch may only depend on chance")
	case dispatch.Modulus != len(dispatch.Entries):
		a.about("kubeproxy.dispatch.count", c, dispatch, n,
			"numgen chooses among %d, there are %d endpoints", dispatch.Modulus, len(dispatch.Entries))
	default:
		a.judgeEntries(n, c, dispatch)
	}
	endpoints := a.endpoints(n, c, dispatch)
	a.judgeAffinity(n, c, dispatch, affinity)
	return endpoints
}

// onlyEndpoint returns a rule that translates to one address as the choice from one that it is.
func onlyEndpoint(r *ruleset.NFTRule) *ruleset.NFTRule {
	chosen := *r
	chosen.Random, chosen.Modulus, chosen.Entries = true, 1, []ruleset.NFTEntry{{Target: r.To}}
	return &chosen
}

// judgeMarkRule: until 1.35 every Service that has a ClusterIP marks off-cluster traffic, or none does.
func (a *nftAudit) judgeMarkRule(n *nftNode, c *nftChain, mark *ruleset.NFTRule) {
	target := n.service
	if n.out.InternalLocal {
		target = n.local
	}
	if c != target || n.out.ClusterIP == "" {
		return
	}
	switch {
	case a.version.Min >= 36:
		n.out.Masquerade = a.detector
	case mark == nil && a.detector != "":
		a.about("kubeproxy.service.masquerade", c, nil, n,
			"%s does not masquerade traffic to its ClusterIP (%s), other Services do", n.name, a.detector)
	case mark == nil:
	case mark.Destination != n.out.ClusterIP:
		a.about("kubeproxy.service.address", c, mark, n,
			"the ClusterIP is %s in @service-ips and %s here", n.out.ClusterIP, mark.Destination)
	case nftDetector(mark) != a.detector:
		a.about("kubeproxy.service.masquerade", c, mark, n, "%s masquerades %s, other Services %s", n.name, nftDetector(mark), a.detector)
	default:
		n.out.Masquerade = nftDetector(mark)
	}
}

func (a *nftAudit) judgeEntries(n *nftNode, c *nftChain, dispatch *ruleset.NFTRule) {
	seen := map[int]bool{}
	targets := map[string]bool{}
	for _, e := range dispatch.Entries {
		switch {
		case e.Key < 0 || e.Key >= dispatch.Modulus || seen[e.Key]:
			a.about("kubeproxy.dispatch.keys", c, dispatch, n,
				"key %d is out of place among 0 to %d: a connection may match no endpoint", e.Key, dispatch.Modulus-1)
			return
		case targets[e.Target]:
			a.about("kubeproxy.dispatch.duplicate", c, dispatch, n, "%s is listed twice among %d endpoints", e.Target, len(dispatch.Entries))
			return
		}
		seen[e.Key], targets[e.Target] = true, true
	}
}

// endpoints judges the chains that a Service dispatches to; from 1.36 the entries are addresses themselves.
func (a *nftAudit) endpoints(n *nftNode, c *nftChain, dispatch *ruleset.NFTRule) []Endpoint {
	list := make([]Endpoint, 0, len(dispatch.Entries))
	for _, entry := range dispatch.Entries {
		e := Endpoint{Line: dispatch.Line, Chance: 1 / float64(max(dispatch.Modulus, 1))}
		kind, _, base := nftKind(entry.Target)
		switch {
		case kind == "" && strings.Contains(entry.Target, ":"):
			e.Address = entry.Target
		case kind != "endpoint" || !strings.HasPrefix(base, n.base+"__"):
			if !c.blamed {
				a.about("kubeproxy.dispatch.foreign", c, dispatch, n, "%s sends connections to %s", n.name, entry.Target)
			}
			e.Chain = entry.Target
		default:
			e.Chain = entry.Target
			e.Address = endpointAddress(base, a.t.Family)
			if to := a.chain(entry.Target); to != nil {
				a.judgeEndpoint(n, to, e.Address)
			}
		}
		list = append(list, e)
	}
	return list
}

// endpointAddress reads "ns/name/tcp/__10.0.0.1/80"; IPv6 addresses are written with dots.
func endpointAddress(base, family string) string {
	_, address, _ := strings.Cut(base, "__")
	ip, port, _ := strings.Cut(address, "/")
	if family == ruleset.IPv6 {
		ip = strings.ReplaceAll(ip, ".", ":")
	}
	return net.JoinHostPort(ip, port)
}

// judgeEndpoint: an endpoint's chain masquerades what comes from itself (until 1.35), notes the client if there is affinity, and
// translates to the address in its name.
func (a *nftAudit) judgeEndpoint(n *nftNode, c *nftChain, address string) {
	if c.blamed {
		return
	}
	var hairpin, update, dnat *ruleset.NFTRule
	for _, r := range c.Rules {
		switch {
		case marks(r) && hairpin == nil:
			hairpin = r
			if dnat != nil {
				a.about("kubeproxy.endpoint.order", c, r, n, "the packet is translated before it can be marked")
				return
			}
		case r.Update != "" && update == nil:
			update = r
		case r.To != "" && dnat == nil:
			dnat = r
		default:
			a.about("kubeproxy.chain.unexpected-rule", c, r, n, "kube-proxy writes no such rule into %s", c.Name)
			return
		}
	}
	ip, _ := splitAddress(address)
	switch {
	case len(c.Rules) == 0:
		a.about("kubeproxy.endpoint.empty", c, nil, n, "%s has no rules", c.Name)
	case dnat == nil:
		a.about("kubeproxy.endpoint.dnat", c, nil, n, "%s does not translate", c.Name)
	case dnat.To != address:
		a.about("kubeproxy.endpoint.dnat", c, dnat, n, "%s is the chain of %s, but it translates to %s", c.Name, address, dnat.To)
	case dnat.Protocol != n.proto:
		a.about("kubeproxy.endpoint.protocol", c, dnat, n, "the Service is %s, the endpoint translates %s", n.proto, dnat.Protocol)
	case dnat.Source != "" || dnat.Destination != "" || dnat.Other:
		a.about("kubeproxy.endpoint.dnat", c, dnat, n, "translation must depend on the protocol alone")
	case a.version.Min >= 36: // hairpin traffic is known by a set
	case hairpin == nil:
		a.about("kubeproxy.endpoint.hairpin", c, dnat, n, "%s does not masquerade what its own endpoint sends", c.Name)
	case hairpin.Source != ip || hairpin.NotSource:
		a.about("kubeproxy.endpoint.hairpin", c, hairpin, n, "the endpoint is %s, but %s is masqueraded", ip, hairpin.Source)
	}
}

// judgeAffinity: the same endpoints are checked as are dispatched to, and each notes its clients in its own set.
func (a *nftAudit) judgeAffinity(n *nftNode, c *nftChain, dispatch *ruleset.NFTRule, affinity []*ruleset.NFTRule) {
	if c.blamed {
		return
	}
	checked := map[string]bool{}
	for _, r := range affinity {
		_, hash, base := nftKind(r.Target)
		set := "affinity-" + hash + "-" + base
		s := a.t.Sets[set]
		switch {
		case r.Source != "@"+set:
			a.about("kubeproxy.affinity.name", c, r, n, "the rule checks %s and leads to %s", r.Source, r.Target)
			return
		case s == nil:
			a.about("kubeproxy.nft.map", c, r, n, "the rule checks @%s, which the table does not have", set)
			return
		case n.out.AffinitySeconds != 0 && s.Timeout != n.out.AffinitySeconds:
			a.about("kubeproxy.affinity.timeout", c, r, n,
				"@%s keeps clients %d s, another set of the Service %d s", set, s.Timeout, n.out.AffinitySeconds)
			return
		}
		n.out.AffinitySeconds = s.Timeout
		checked[r.Target] = true
	}
	for _, e := range dispatch.Entries {
		to := a.chain(e.Target)
		if to == nil || to.blamed {
			continue
		}
		records := ""
		for _, r := range to.Rules {
			records += r.Update
		}
		_, hash, base := nftKind(e.Target)
		switch {
		case checked[e.Target] != (records != "") && len(affinity) > 0 && checked[e.Target],
			records != "" && records != "affinity-"+hash+"-"+base:
			a.about("kubeproxy.affinity.record", to, nil, n, "%s does not note its clients in its own set", e.Target)
			return
		case !checked[e.Target] && (len(affinity) > 0 || records != ""):
			a.about("kubeproxy.affinity.set", c, dispatch, n, "%s is dispatched to but not checked for affinity", e.Target)
			return
		}
	}
	if len(affinity) > len(dispatch.Entries) {
		a.about("kubeproxy.affinity.set", c, affinity[len(affinity)-1], n,
			"%d affinity rules for %d endpoints", len(affinity), len(dispatch.Entries))
	}
}
