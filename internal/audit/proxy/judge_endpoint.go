package proxy

import (
	"net"
	"strings"

	"nodegate/internal/ruleset"
)

// claim is a dispatch to the chain of an endpoint.
type claim struct {
	n    *node
	from *ruleset.Rule
}

// dnat returns the DNAT rule of an endpoint's chain.
func (c *chain) dnat() *ruleset.Rule {
	for i := range c.Rules {
		r := &c.Rules[i]
		if r.Target == "DNAT" {
			return r
		}
	}
	return nil
}

// claimEndpoints records which Service dispatches to which endpoint's chain. The endpoints are then judged in the order of the save: in
// the order of Services, a large save causes a cache miss for every rule.
func (a *audit) claimEndpoints() {
	for c := range a.chainsOf(a.nat) {
		if c.owner == nil {
			continue
		}
		for i := range c.Rules {
			r := &c.Rules[i]
			to := a.target(r)
			if to == nil || to.owner != nil || r.Has(ruleset.ByRecent) {
				continue
			}
			switch {
			case to.claim.n == nil:
				if kind, _ := serviceChain(to.Name); kind == "SEP" {
					to.claim = claim{c.owner, r}
				}
			case to.claim.n != c.owner:
				a.rivals = append(a.rivals, claim{c.owner, r})
			}
		}
	}
}

// judgeEndpoints checks invariant 4. A KUBE-SEP chain masquerades packets from the endpoint itself
// and translates all packets to it. Its name is the hash of Service, protocol and address.
func (a *audit) judgeEndpoints() {
	for c := range a.chainsOf(a.nat) {
		if c.claim.n != nil {
			a.judgeEndpoint(c)
		}
	}
	for _, r := range a.rivals {
		c := a.target(r.from)
		switch {
		case c.owner == r.n || c.translate == nil:
		case c.owner == nil && a.hashes(c, r.n, c.address):
			c.owner = r.n
		default:
			a.strangers = append(a.strangers, r)
		}
	}
}

func (a *audit) judgeEndpoint(c *chain) {
	n := c.claim.n
	var hairpin, dnat *ruleset.Rule
	for i := range c.Rules {
		r := &c.Rules[i]
		switch {
		case r.Target == "KUBE-MARK-MASQ" && hairpin == nil:
			hairpin = r
		case r.Target == "DNAT" && dnat == nil:
			dnat = r
		default:
			if !c.blamed {
				a.addFinding("kubeproxy.chain.unexpected-rule", "nat", c, r, n, "kube-proxy does not write this rule into %s", c.Name)
			}
		}
	}
	if dnat != nil && !dnat.Has(ruleset.Unprintable) {
		c.translate, c.address = dnat, dnat.To
	}
	switch {
	case c.blamed:
	case dnat != nil && dnat.Has(ruleset.Unprintable):
		if a.unreadable++; a.firstUnread == nil {
			a.firstUnread = dnat
		}
		c.owner = n
	case len(c.Rules) == 0:
		a.addFinding("kubeproxy.endpoint.empty", "nat", c, nil, n, "%s has no rules: its connections go to the Service address itself", c.Name)
	case dnat == nil:
		a.addFinding("kubeproxy.endpoint.dnat", "nat", c, nil, n,
			"%s has no DNAT rule: its connections go to the Service address itself", c.Name)
	case hairpin == nil:
		a.addFinding("kubeproxy.endpoint.hairpin", "nat", c, dnat, n,
			"%s does not masquerade packets from its own endpoint, which cannot reach itself through the Service", c.Name)
	case hairpin.Line > dnat.Line:
		a.addFinding("kubeproxy.endpoint.order", "nat", c, hairpin, n, "packets are translated before they can be marked")
	case dnat.Conditions() != ruleset.ByProtocol:
		a.addFinding("kubeproxy.endpoint.dnat", "nat", c, dnat, n, "the DNAT rule must have no condition other than the protocol")
	case dnat.Protocol != n.proto:
		a.addFinding("kubeproxy.endpoint.protocol", "nat", c, dnat, n, "the Service uses %s, the endpoint's DNAT rule %s", n.proto, dnat.Protocol)
	default:
		a.judgeAddress(c, hairpin, dnat)
	}
}

func (a *audit) judgeAddress(c *chain, hairpin, dnat *ruleset.Rule) {
	n := c.claim.n
	ip, port := splitAddress(dnat.To)
	src := trimCIDR(hairpin.Source)
	same := src == ip && hairpin.Flags&(ruleset.Conditions|ruleset.NotSource) == ruleset.BySource
	switch {
	case a.hashes(c, n, dnat.To) && same:
		c.owner = n
	case a.hashes(c, n, dnat.To):
		a.addFinding("kubeproxy.endpoint.hairpin", "nat", c, hairpin, n, "the endpoint is %s, but the rule masquerades %s", ip, src)
	case !same && a.hashes(c, n, net.JoinHostPort(src, port)):
		a.addFinding("kubeproxy.endpoint.dnat", "nat", c, dnat, n, "%s is the chain of %s, but its DNAT rule leads to %s",
			c.Name, net.JoinHostPort(src, port), dnat.To)
	default:
		a.strangers = append(a.strangers, c.claim)
	}
}

// hashes reports whether a chain's name is the hash of a Service and an address.
func (a *audit) hashes(c *chain, n *node, address string) bool {
	_, hash := serviceChain(c.Name)
	return string(a.hash.sum16(n.name, n.proto, address)) == hash
}

// judgeStrangers judges dispatches to chains whose hash differs from the Service's: either the
// chain or the dispatch is wrong. It runs last, because only then every endpoint has its Service.
func (a *audit) judgeStrangers() {
	for _, m := range a.strangers {
		c := a.target(m.from)
		dnat := c.translate
		other := c.owner
		if other == nil && dnat.Comment != "" && dnat.Comment != m.n.name {
			other = a.commented(dnat)
		}
		switch {
		case other != nil && other != m.n:
			a.dispatchFinding("foreign", &a.chains[m.from.Chain], m.from, m.n, "%s sends connections to %s, an endpoint of %s",
				m.n.name, dnat.To, other.name)
		case !c.blamed:
			a.addFinding("kubeproxy.endpoint.hash", "nat", c, dnat, m.n, "the hash of %s, %s and %s is %s, not the chain's name",
				m.n.name, m.n.proto, dnat.To, a.hash.sum16(m.n.name, m.n.proto, dnat.To))
		}
	}
}

// judgeUnreadable checks invariant 11. The host's iptables cannot print the rules, so one finding covers all of them.
func (a *audit) judgeUnreadable() {
	if r := a.firstUnread; r != nil {
		a.addFinding("kubeproxy.rule.unreadable", "nat", &a.chains[r.Chain], r, nil,
			"iptables-save could not print the destination of %d endpoints: the host's iptables is older than the one that wrote the rules",
			a.unreadable)
	}
}

// splitAddress splits "10.0.0.1:80" or "[2001:db8::1]:80".
func splitAddress(s string) (ip, port string) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return s, ""
	}
	return strings.TrimSuffix(strings.TrimPrefix(s[:i], "["), "]"), s[i+1:]
}

// judgeAffinity checks invariant 3: the affinity rules cover exactly the endpoints, and each endpoint records its clients.
func (a *audit) judgeAffinity(n *node, c *chain) {
	if c.blamed {
		return
	}
	a.stamp++
	for i, r := range a.recents {
		recent, reaps := r.Extra(), r.Has(ruleset.RecentReap)
		switch first := a.recents[0].Extra().Seconds; {
		case recent.Recent != r.Target || r.Has(ruleset.RecentOther):
			a.addFinding("kubeproxy.affinity.name", "nat", c, r, n, "the rule checks list %s but jumps to %s", recent.Recent, r.Target)
			return
		case recent.Seconds != first || !reaps:
			a.addFinding("kubeproxy.affinity.timeout", "nat", c, r, n, "rule %d of %d has --seconds %d, --reap %t; the first rule has --seconds %d",
				i+1, len(a.recents), recent.Seconds, reaps, first)
			return
		}
		if to := a.target(r); to != nil {
			to.stamp = a.stamp
		}
		n.out.AffinitySeconds = int(recent.Seconds)
	}
	for _, r := range a.targets {
		to := a.target(r)
		if to == nil || to.blamed || to.translate == nil {
			continue
		}
		dnat := to.translate
		switch records := dnat.Has(ruleset.RecentSet); {
		case len(a.recents) > 0 && to.stamp != a.stamp, len(a.recents) == 0 && records:
			a.addFinding("kubeproxy.affinity.set", "nat", c, r, n, "no affinity rule for %s, which gets connections", r.Target)
			return
		case len(a.recents) > 0 && (!records || dnat.Extra().Recent != r.Target || dnat.Has(ruleset.RecentOther)):
			a.addFinding("kubeproxy.affinity.record", "nat", to, dnat, n, "%s does not record its clients in its own list", r.Target)
			return
		}
	}
	if len(a.recents) > len(a.targets) {
		last := a.recents[len(a.recents)-1]
		a.addFinding("kubeproxy.affinity.set", "nat", c, last, n, "%d affinity rules for %d endpoints", len(a.recents), len(a.targets))
	}
}
