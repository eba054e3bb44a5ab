package proxyrules

import (
	"net"
	"strings"

	"nodegate/internal/ruleset"
)

// claim is a dispatch to an endpoint's chain.
type claim struct {
	n    *node
	from *ruleset.Rule
}

// dnat returns the rule of an endpoint's chain that translates.
func (c *chain) dnat() *ruleset.Rule {
	for i := range c.Rules {
		r := &c.Rules[i]
		if r.Target == "DNAT" {
			return r
		}
	}
	return nil
}

// claimEndpoints notes which Service dispatches to which endpoint's chain. Endpoints are then judged in the order of the save: in the
// order of Services a large save costs a cache miss for every rule.
func (a *audit) claimEndpoints() {
	for c := range a.in(a.nat) {
		if c.owner == nil {
			continue
		}
		for i := range c.Rules {
			r := &c.Rules[i]
			to := a.to(r)
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

// judgeEndpoints: invariant 4. A KUBE-SEP chain masquerades what comes from the endpoint itself and translates the rest to it;
// its name is the hash of Service, protocol and address.
func (a *audit) judgeEndpoints() {
	for c := range a.in(a.nat) {
		if c.claim.n != nil {
			a.judgeEndpoint(c)
		}
	}
	for _, r := range a.rivals {
		c := a.to(r.from)
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
				a.about("kubeproxy.chain.unexpected-rule", "nat", c, r, n, "kube-proxy writes no such rule into %s", c.Name)
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
		a.about("kubeproxy.endpoint.empty", "nat", c, nil, n,
			"%s has no rules: connections sent there go to the Service address itself", c.Name)
	case dnat == nil:
		a.about("kubeproxy.endpoint.dnat", "nat", c, nil, n,
			"%s does not translate: connections sent there go to the Service address itself", c.Name)
	case hairpin == nil:
		a.about("kubeproxy.endpoint.hairpin", "nat", c, dnat, n,
			"%s does not masquerade what its own endpoint sends: it cannot reach itself through the Service", c.Name)
	case hairpin.Line > dnat.Line:
		a.about("kubeproxy.endpoint.order", "nat", c, hairpin, n, "the packet is translated before it can be marked")
	case dnat.Conditions() != ruleset.ByProtocol:
		a.about("kubeproxy.endpoint.dnat", "nat", c, dnat, n, "translation must depend on the protocol alone")
	case dnat.Protocol != n.proto:
		a.about("kubeproxy.endpoint.protocol", "nat", c, dnat, n, "the Service is %s, the endpoint translates %s", n.proto, dnat.Protocol)
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
		a.about("kubeproxy.endpoint.hairpin", "nat", c, hairpin, n, "the endpoint is %s, but %s is masqueraded", ip, src)
	case !same && a.hashes(c, n, net.JoinHostPort(src, port)):
		a.about("kubeproxy.endpoint.dnat", "nat", c, dnat, n, "%s is the chain of %s, but it translates to %s",
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

// judgeStrangers judges dispatches to chains whose hash is not that of the Service: either the chain is wrong or the dispatch is.
// It runs last: only when every endpoint has its Service is it known which one.
func (a *audit) judgeStrangers() {
	for _, m := range a.strangers {
		c := a.to(m.from)
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
			a.about("kubeproxy.endpoint.hash", "nat", c, dnat, m.n, "%s, %s and %s hash to %s, not to the chain's name",
				m.n.name, m.n.proto, dnat.To, a.hash.sum16(m.n.name, m.n.proto, dnat.To))
		}
	}
}

// judgeUnreadable: invariant 11. It is this host's iptables that cannot print the rules, so there is one finding for all.
func (a *audit) judgeUnreadable() {
	if r := a.firstUnread; r != nil {
		a.about("kubeproxy.rule.unreadable", "nat", &a.chains[r.Chain], r, nil,
			"iptables-save could not print the destination of %d endpoints: the host's iptables is older than the one that wrote them",
			a.unreadable)
	}
}

// splitAddress takes "10.0.0.1:80" or "[2001:db8::1]:80" apart.
func splitAddress(s string) (ip, port string) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return s, ""
	}
	return strings.TrimSuffix(strings.TrimPrefix(s[:i], "["), "]"), s[i+1:]
}

// judgeAffinity: invariant 3. The same endpoints are checked as are dispatched to, and each records its clients.
func (a *audit) judgeAffinity(n *node, c *chain) {
	if c.blamed {
		return
	}
	a.stamp++
	for i, r := range a.recents {
		recent, reaps := r.Extra(), r.Has(ruleset.RecentReap)
		switch first := a.recents[0].Extra().Seconds; {
		case recent.Recent != r.Target || r.Has(ruleset.RecentOther):
			a.about("kubeproxy.affinity.name", "nat", c, r, n, "the rule checks list %s and leads to %s", recent.Recent, r.Target)
			return
		case recent.Seconds != first || !reaps:
			a.about("kubeproxy.affinity.timeout", "nat", c, r, n, "rule %d of %d: %d seconds, reap %t; the first has %d",
				i+1, len(a.recents), recent.Seconds, reaps, first)
			return
		}
		if to := a.to(r); to != nil {
			to.stamp = a.stamp
		}
		n.out.AffinitySeconds = int(recent.Seconds)
	}
	for _, r := range a.targets {
		to := a.to(r)
		if to == nil || to.blamed || to.translate == nil {
			continue
		}
		dnat := to.translate
		switch records := dnat.Has(ruleset.RecentSet); {
		case len(a.recents) > 0 && to.stamp != a.stamp, len(a.recents) == 0 && records:
			a.about("kubeproxy.affinity.set", "nat", c, r, n, "%s is dispatched to but not checked for affinity", r.Target)
			return
		case len(a.recents) > 0 && (!records || dnat.Extra().Recent != r.Target || dnat.Has(ruleset.RecentOther)):
			a.about("kubeproxy.affinity.record", "nat", to, dnat, n, "%s does not record its clients in its own list", r.Target)
			return
		}
	}
	if len(a.recents) > len(a.targets) {
		last := a.recents[len(a.recents)-1]
		a.about("kubeproxy.affinity.set", "nat", c, last, n, "%d affinity rules for %d endpoints", len(a.recents), len(a.targets))
	}
}
