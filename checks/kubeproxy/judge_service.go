package kubeproxy

import "strings"

// largeCluster is the number of endpoints above which kube-proxy leaves out comments and lets stale chains stay for an hour.
const largeCluster = 1000

// adoptChains finds, for chains to which no Service's rule has led, the Service by their own comments, and learns what the
// save as a whole shows: large-cluster mode, and which traffic kube-proxy masquerades.
func (a *audit) adoptChains() {
	if a.nat == nil {
		return
	}
	endpoints := 0
	detectors := map[string]int{}
	for _, c := range a.nat.order {
		kind, _ := serviceChain(c.name)
		switch kind {
		case "SEP":
			endpoints++
			if a.version.Min >= 17 && c.last != nil && c.last.target == "DNAT" && c.last.comment == "" {
				a.large = true
			}
		case "SVC", "SVL":
			for r := c.first; r != nil && r.target == "KUBE-MARK-MASQ"; r = r.next {
				name, what := portal(r.comment)
				if what != "cluster IP" {
					continue
				}
				detectors[a.detectorOf(r)]++
				if c.owner == nil && !c.blamed {
					if n := a.node(name, r.proto); c.owner != n {
						a.about("kubeproxy.service.hash", "nat", c, r, n, "%s (%s) hashes to %s, but its rule is in %s", n.name, n.proto, a.hash.sum16(n.name, n.proto), c.name)
					}
				}
			}
		}
	}
	a.large = a.large || endpoints > largeCluster
	most := 0
	for d, n := range detectors {
		if n > most || n == most && d < a.detector {
			a.detector, most = d, n
		}
	}
}

// detectorOf says in words which traffic a MARK-MASQ rule marks.
func (a *audit) detectorOf(r *rule) string {
	switch {
	case r.has(condSrc | notSrc):
		return "not from " + r.src
	case r.has(condSrc):
		return "from " + r.src
	case r.has(condIface | notIface):
		return "not from interface " + r.iface()
	}
	return "all"
}

// judgeService judges the chains of one Service.
func (a *audit) judgeService(n *node) {
	a.judgePortals(n)
	a.judgeServiceMasquerade(n)
	if n.svc != nil {
		n.out.Endpoints = a.judgeDispatch(n, n.svc)
	}
	if n.svl != nil {
		n.out.LocalEndpoints = a.judgeDispatch(n, n.svl)
	}
	if n.xlb != nil {
		n.out.ExternalLocal = true
		n.out.LocalEndpoints = a.judgeDispatch(n, n.xlb)
	}
	if n.ext != nil {
		a.judgeExternal(n)
	}
	a.judgeSourceRanges(n)
}

// judgePortals: what a Service's other rules say about its addresses must lead there.
func (a *audit) judgePortals(n *node) {
	if a.broken[n.name] || !n.reached || a.portalsEmpty {
		return
	}
	if n.loopback != nil && n.nodePort != nil && n.loopback.dport != n.nodePort.dport {
		a.about("kubeproxy.service.address", "nat", n.loopback.chain, n.loopback, n, "the node port is %s here and %s in line %d", n.loopback.dport, n.nodePort.dport, n.nodePort.line)
		n.loopback.chain.blamed = false
		return
	}
	if n.loopback != nil && n.nodePort == nil && !a.portsDamaged {
		a.about("kubeproxy.nodeports.missing", "nat", n.loopback.chain, n.loopback, n, "node port %s is answered on 127.0.0.0/8 only", n.loopback.dport)
		n.loopback.chain.blamed = false
		return
	}
	for _, c := range []*chain{n.svc, n.svl} {
		if n.cluster != nil || c == nil || c.blamed || c.refs == 0 {
			continue
		}
		for r := c.first; r != nil && r.target == "KUBE-MARK-MASQ"; r = r.next {
			if of, what := portal(r.comment); of == n.name && what == "cluster IP" {
				a.about("kubeproxy.service.portal", "nat", c, r, n, "%s has ClusterIP %s, but KUBE-SERVICES does not lead there", n.name, trimCIDR(r.dst))
				return
			}
		}
	}
}

// judgeServiceMasquerade: from 1.22 the rule for the ClusterIP stands in the Service's own chain, in every Service's or in none.
func (a *audit) judgeServiceMasquerade(n *node) {
	if a.broken[n.name] || n.cluster == nil || n.cluster.jump == nil || n.cluster.jump.owner != n || n.cluster.jump.blamed || a.version.Min < 22 {
		return
	}
	const name = "kubeproxy.service.masquerade"
	c := n.cluster.jump
	for r := c.first; r != nil; r = r.next {
		of, what := portal(r.comment)
		if r.target != "KUBE-MARK-MASQ" || what != "cluster IP" {
			continue // until 1.23 external addresses stand here too
		}
		n.out.Masquerade = a.detectorOf(r)
		switch {
		case of != n.name:
			a.about("kubeproxy.service.hash", "nat", c, r, n, "the rule is for %s, the chain is that of %s", of, n.name)
		case r.dst != n.cluster.dst || r.dport != n.cluster.dport || r.proto != n.cluster.proto:
			a.about("kubeproxy.service.address", "nat", c, r, n, "%s is %s %s %s here and %s %s %s in line %d", n.name,
				r.dst, r.proto, r.dport, n.cluster.dst, n.cluster.proto, n.cluster.dport, n.cluster.line)
		case n.out.Masquerade != a.detector:
			a.about(name, "nat", c, r, n, "%s masquerades %s, other Services %s", n.name, n.out.Masquerade, a.detector)
		}
		return
	}
	if a.detector != "" && c.n > 0 {
		a.about(name, "nat", c, nil, n, "%s does not masquerade traffic to its ClusterIP (%s), other Services do", n.name, a.detector)
	}
}

// judgeUnreferenced: invariant 1, its second half. A chain that nothing leads to is legal only in large-cluster mode.
func (a *audit) judgeUnreferenced() {
	if a.nat == nil || a.large || a.portalsEmpty {
		return
	}
	var broken []*node
	for _, n := range a.nodes {
		if a.isBroken(n) {
			broken = append(broken, n)
		}
	}
	for _, c := range a.nat.order {
		kind, hash := serviceChain(c.name)
		if kind == "" || !c.declared || c.refs > 0 || c.blamed || c.owner != nil && a.isBroken(c.owner) {
			continue
		}
		if kind == "SEP" && a.lostBy(broken, c, hash) {
			continue
		}
		if kind == "SEP" && c.first != nil && c.owner == nil {
			c.owner = a.commented(c.first)
		}
		a.about("kubeproxy.chain.unreferenced", "nat", c, nil, nil, "no rule of table nat leads to %s", c.name)
	}
}

// lostBy reports whether an endpoint's chain is out of use because its Service is broken.
func (a *audit) lostBy(broken []*node, c *chain, hash string) bool {
	if len(broken) > 64 {
		return true // too many causes to tell which is which
	}
	dnat := c.dnat()
	for _, n := range broken {
		if dnat != nil && string(a.hash.sum16(n.name, n.proto, dnat.detail)) == hash {
			return true
		}
		if c.first != nil && strings.TrimSuffix(c.first.comment, ":") == n.out.Name {
			return true
		}
	}
	return false
}

// commented finds the Service that a rule's comment names.
func (a *audit) commented(r *rule) *node {
	for _, proto := range []string{"tcp", "udp", "sctp"} {
		if n := a.byName[nodeKey{r.comment, proto}]; n != nil {
			return n
		}
	}
	return nil
}
