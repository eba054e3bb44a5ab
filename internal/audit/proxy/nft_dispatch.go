package proxy

import (
	"net"
	"strings"

	"nodegate/internal/audit/model"
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

// judgeDispatch judges a Service's chain: a MARK rule (until 1.35), affinity rules and one rule that chooses by numgen mod N. There must
// be N entries with keys 0 to N-1. From 1.37, the rule for a single endpoint lacks numgen.
func (a *nftAudit) judgeDispatch(n *nftNode, c *nftChain) []Endpoint {
	if c.blamed {
		return nil
	}
	var dispatch, mark *ruleset.NFTRule
	var affinity []*ruleset.NFTRule
	for _, r := range c.Rules {
		kind, _, _ := nftKind(r.Target)
		switch {
		case marksPackets(r) && dispatch == nil && len(affinity) == 0:
			mark = r
		case kind == "endpoint" && strings.HasPrefix(r.Source, "@") && dispatch == nil:
			affinity = append(affinity, r)
		case r.Entries != nil && dispatch == nil && r.Random:
			dispatch = r
		case r.To != "" && dispatch == nil && r.Update == "" && len(affinity) == 0 && a.version.Max >= 37:
			dispatch = onlyEndpoint(r)
		case marksPackets(r) || kind == "endpoint" && r.Source != "":
			a.addFinding("kubeproxy.dispatch.order", c, r, n, "the rule follows the dispatch rule, so it never matches")
			return nil
		default:
			a.addFinding("kubeproxy.chain.unexpected-rule", c, r, n, "kube-proxy does not write this rule into %s", c.Name)
			return nil
		}
	}
	a.judgeMarkRule(n, c, mark)
	switch {
	case dispatch == nil:
		a.addFinding("kubeproxy.dispatch.empty", c, nil, n, "no rule of %s leads to an endpoint", c.Name)
		return nil
	case dispatch.Source != "" || dispatch.Destination != "" || dispatch.Other || dispatch.Protocol != "" && dispatch.Protocol != n.proto:
		a.addFinding("kubeproxy.dispatch.condition", c, dispatch, n, "the dispatch rule must have no condition other than numgen")
	case dispatch.Modulus != len(dispatch.Entries):
		a.addFinding("kubeproxy.dispatch.count", c, dispatch, n,
			"numgen chooses among %d endpoints, but there are %d", dispatch.Modulus, len(dispatch.Entries))
	default:
		a.judgeEntries(n, c, dispatch)
	}
	endpoints := a.endpoints(n, c, dispatch)
	a.judgeAffinity(n, c, dispatch, affinity)
	return endpoints
}

// onlyEndpoint converts a rule that translates to a single address into a choice with one entry.
func onlyEndpoint(r *ruleset.NFTRule) *ruleset.NFTRule {
	chosen := *r
	chosen.Random, chosen.Modulus, chosen.Entries = true, 1, []ruleset.NFTEntry{{Target: r.To}}
	return &chosen
}

// judgeMarkRule: until 1.35, either every Service with a ClusterIP marks off-cluster traffic, or none does.
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
		a.addFinding("kubeproxy.service.masquerade", c, nil, n,
			"%s does not masquerade traffic to its ClusterIP (%s), but other Services do", n.name, a.detector)
	case mark == nil:
	case mark.Destination != n.out.ClusterIP:
		a.addFinding("kubeproxy.service.address", c, mark, n,
			"the ClusterIP is %s in @service-ips, but %s here", n.out.ClusterIP, mark.Destination)
	case nftDetector(mark) != a.detector:
		a.addFinding("kubeproxy.service.masquerade", c, mark, n, "%s masquerades traffic %s, other Services %s",
			n.name, nftDetector(mark), a.detector)
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
			a.addFinding("kubeproxy.dispatch.keys", c, dispatch, n,
				"key %d does not fit the sequence 0 to %d: a connection may match no endpoint", e.Key, dispatch.Modulus-1)
			return
		case targets[e.Target]:
			a.addFinding("kubeproxy.dispatch.duplicate", c, dispatch, n, "%s is listed twice among %d endpoints", e.Target, len(dispatch.Entries))
			return
		}
		seen[e.Key], targets[e.Target] = true, true
	}
}

// endpoints judges the chains to which a Service dispatches. From 1.36, the entries are the addresses themselves.
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
				a.addFinding("kubeproxy.dispatch.foreign", c, dispatch, n, "%s sends connections to %s", n.name, entry.Target)
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

// endpointAddress parses "ns/name/tcp/__10.0.0.1/80". IPv6 addresses have dots instead of colons.
func endpointAddress(base, family string) string {
	_, address, _ := strings.Cut(base, "__")
	ip, port, _ := strings.Cut(address, "/")
	if family == ruleset.IPv6 {
		ip = strings.ReplaceAll(ip, ".", ":")
	}
	return net.JoinHostPort(ip, port)
}

// judgeEndpoint judges an endpoint's chain. It masquerades packets from the endpoint itself (until
// 1.35), records the client for session affinity, and translates to the address in its name.
func (a *nftAudit) judgeEndpoint(n *nftNode, c *nftChain, address string) {
	if c.blamed {
		return
	}
	var hairpin, update, dnat *ruleset.NFTRule
	for _, r := range c.Rules {
		switch {
		case marksPackets(r) && hairpin == nil:
			hairpin = r
			if dnat != nil {
				a.addFinding("kubeproxy.endpoint.order", c, r, n, "packets are translated before they can be marked")
				return
			}
		case r.Update != "" && update == nil:
			update = r
		case r.To != "" && dnat == nil:
			dnat = r
		default:
			a.addFinding("kubeproxy.chain.unexpected-rule", c, r, n, "kube-proxy does not write this rule into %s", c.Name)
			return
		}
	}
	ip, _ := model.SplitAddress(address)
	switch {
	case len(c.Rules) == 0:
		a.addFinding("kubeproxy.endpoint.empty", c, nil, n, "%s has no rules", c.Name)
	case dnat == nil:
		a.addFinding("kubeproxy.endpoint.dnat", c, nil, n, "%s has no DNAT rule", c.Name)
	case dnat.To != address:
		a.addFinding("kubeproxy.endpoint.dnat", c, dnat, n, "%s is the chain of %s, but its DNAT rule leads to %s", c.Name, address, dnat.To)
	case dnat.Protocol != n.proto:
		a.addFinding("kubeproxy.endpoint.protocol", c, dnat, n, "the Service uses %s, the endpoint's DNAT rule %s", n.proto, dnat.Protocol)
	case dnat.Source != "" || dnat.Destination != "" || dnat.Other:
		a.addFinding("kubeproxy.endpoint.dnat", c, dnat, n, "the DNAT rule must have no condition other than the protocol")
	case a.version.Min >= 36: // a set identifies hairpin traffic
	case hairpin == nil:
		a.addFinding("kubeproxy.endpoint.hairpin", c, dnat, n, "%s does not masquerade packets from its own endpoint", c.Name)
	case hairpin.Source != ip || hairpin.NotSource:
		a.addFinding("kubeproxy.endpoint.hairpin", c, hairpin, n, "the endpoint is %s, but the rule masquerades %s", ip, hairpin.Source)
	}
}

// judgeAffinity checks that the affinity rules cover exactly the endpoints, and that each endpoint records its clients in its own set.
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
			a.addFinding("kubeproxy.affinity.set", c, r, n, "the rule checks %s but jumps to %s", r.Source, r.Target)
			return
		case s == nil:
			a.addFinding("kubeproxy.nft.map", c, r, n, "the rule checks @%s, which is missing from the table", set)
			return
		case n.out.AffinitySeconds != 0 && s.Timeout != n.out.AffinitySeconds:
			a.addFinding("kubeproxy.affinity.set", c, r, n,
				"the timeout of @%s is %d s, the timeout of another set of the Service %d s", set, s.Timeout, n.out.AffinitySeconds)
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
			a.addFinding("kubeproxy.affinity.set", to, nil, n, "%s does not record its clients in its own set", e.Target)
			return
		case !checked[e.Target] && (len(affinity) > 0 || records != ""):
			a.addFinding("kubeproxy.affinity.set", c, dispatch, n, "no affinity rule for %s, which gets connections", e.Target)
			return
		}
	}
	if len(affinity) > len(dispatch.Entries) {
		a.addFinding("kubeproxy.affinity.set", c, affinity[len(affinity)-1], n,
			"%d affinity rules for %d endpoints", len(affinity), len(dispatch.Entries))
	}
}
