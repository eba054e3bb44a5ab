package kubeproxy

import "strings"

// mismatch is a dispatch to a chain whose hash is not that of the Service: either the chain is wrong or the dispatch is. Which
// one is known when all Services have been judged.
type mismatch struct {
	n    *node
	from *rule
	dnat *rule
}

// dnat returns the rule of an endpoint's chain that translates.
func (c *chain) dnat() *rule {
	for r := c.first; r != nil; r = r.next {
		if r.target == "DNAT" {
			return r
		}
	}
	return nil
}

// judgeEndpoint: invariant 4. A KUBE-SEP chain masquerades what comes from the endpoint itself and translates the rest to it;
// its name is the hash of Service, protocol and address.
func (a *audit) judgeEndpoint(n *node, from *rule) {
	c := from.jump
	if c.blamed || c.owner == n {
		return
	}
	var hairpin, dnat *rule
	for r := c.first; r != nil; r = r.next {
		switch {
		case r.target == "KUBE-MARK-MASQ" && hairpin == nil:
			hairpin = r
		case r.target == "DNAT" && dnat == nil:
			dnat = r
		default:
			a.about("kubeproxy.chain.unexpected-rule", "nat", c, r, n, "kube-proxy writes no such rule into %s", c.name)
			return
		}
	}
	switch {
	case dnat != nil && dnat.has(cannotRead):
		if a.unreadable++; a.firstUnread == nil {
			a.firstUnread = dnat
		}
		c.owner = n
	case c.first == nil:
		a.about("kubeproxy.endpoint.empty", "nat", c, nil, n, "%s has no rules: connections sent there go to the Service address itself", c.name)
	case dnat == nil:
		a.about("kubeproxy.endpoint.dnat", "nat", c, nil, n, "%s does not translate: connections sent there go to the Service address itself", c.name)
	case hairpin == nil:
		a.about("kubeproxy.endpoint.hairpin", "nat", c, dnat, n, "%s does not masquerade what its own endpoint sends: it cannot reach itself through the Service", c.name)
	case hairpin.line > dnat.line:
		a.about("kubeproxy.endpoint.order", "nat", c, hairpin, n, "the packet is translated before it can be marked")
	case dnat.flags&conds != condProto:
		a.about("kubeproxy.endpoint.dnat", "nat", c, dnat, n, "translation must depend on the protocol alone")
	case n.proto != "" && dnat.proto != n.proto:
		a.about("kubeproxy.endpoint.protocol", "nat", c, dnat, n, "the Service is %s, the endpoint translates %s", n.proto, dnat.proto)
	default:
		a.judgeAddress(n, from, hairpin, dnat)
	}
}

func (a *audit) judgeAddress(n *node, from, hairpin, dnat *rule) {
	c := from.jump
	_, hash := serviceChain(c.name)
	ip, port := splitAddress(dnat.detail)
	src := trimCIDR(hairpin.src)
	same := src == ip && hairpin.flags&(conds|notSrc) == condSrc
	switch {
	case n.name == "" && same: // nothing to hash with
		c.owner = n
	case n.name == "":
		a.about("kubeproxy.endpoint.hairpin", "nat", c, hairpin, n, "the endpoint is %s, masqueraded is %s", ip, src)
	case string(a.hash.sum16(n.name, n.proto, dnat.detail)) == hash && same:
		c.owner = n
	case string(a.hash.sum16(n.name, n.proto, dnat.detail)) == hash:
		a.about("kubeproxy.endpoint.hairpin", "nat", c, hairpin, n, "the endpoint is %s, but %s is masqueraded", ip, src)
	case !same && string(a.hash.sum16(n.name, n.proto, joinAddress(src, port))) == hash:
		a.about("kubeproxy.endpoint.dnat", "nat", c, dnat, n, "%s is the chain of %s, but it translates to %s", c.name, joinAddress(src, port), dnat.detail)
	default:
		a.postponed = append(a.postponed, mismatch{n, from, dnat})
	}
}

// judgePostponed decides between a wrong chain and a wrong dispatch.
func (a *audit) judgePostponed() {
	for _, m := range a.postponed {
		c := m.from.jump
		other := c.owner
		if other == nil && m.dnat.comment != "" && m.dnat.comment != m.n.name {
			other = a.commented(m.dnat)
		}
		switch {
		case other != nil && other != m.n:
			a.dispatchFinding("foreign", m.from.chain, m.from, m.n, "%s sends connections to %s, an endpoint of %s", m.n.name, m.dnat.detail, other.name)
		case !c.blamed:
			a.about("kubeproxy.endpoint.hash", "nat", c, m.dnat, m.n, "%s, %s and %s hash to %s, not to the chain's name", m.n.name, m.n.proto, m.dnat.detail,
				a.hash.sum16(m.n.name, m.n.proto, m.dnat.detail))
		}
	}
}

// judgeUnreadable: invariant 11. It is this host's iptables that cannot print the rules, so there is one finding for all.
func (a *audit) judgeUnreadable() {
	if r := a.firstUnread; r != nil {
		a.about("kubeproxy.rule.unreadable", "nat", r.chain, r, nil, "iptables-save could not print the destination of %d endpoints: the host's iptables is older than the one that wrote them", a.unreadable)
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

func joinAddress(ip, port string) string {
	if strings.Contains(ip, ":") {
		return "[" + ip + "]:" + port
	}
	return ip + ":" + port
}
