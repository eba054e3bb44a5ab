package proxyrules

import (
	"strings"

	"nodegate/internal/ruleset"
)

// largeCluster is the number of endpoints above which kube-proxy leaves out comments and lets chains stay that are out of use.
const largeCluster = 1000

// findLeft learns whether the save is of large-cluster mode, and which chains of Services are out of use then: nothing leads to them any
// more, and kube-proxy takes them away with the first writing 30 s after it last looked for such (syncProxyRules of pkg/proxy/iptables),
// which may be an hour later. They say nothing of their Services.
func (a *audit) findLeft() {
	if a.nat == nil {
		return
	}
	var roots, services []*chain // roots may lead to Services
	endpoints := 0
	for c := range a.in(a.nat) {
		switch kind, _ := serviceChain(c.Name); kind {
		case "SEP":
			endpoints++
			if last := len(c.Rules) - 1; a.version.Min >= 17 && last >= 0 && c.Rules[last].Target == "DNAT" && c.Rules[last].Comment == "" {
				a.large = true
			}
		case "":
			roots = append(roots, c)
		default:
			services = append(services, c)
		}
	}
	if a.large = a.large || endpoints > largeCluster; !a.large {
		return
	}
	for _, c := range services {
		c.left = true
	}
	for len(roots) > 0 {
		c := roots[len(roots)-1]
		roots = roots[:len(roots)-1]
		for i := range c.Rules {
			if to := a.to(&c.Rules[i]); to != nil && to.left {
				to.left = false
				if kind, _ := serviceChain(to.Name); kind != "SVC" && kind != "SVL" { // these lead to endpoints only
					roots = append(roots, to)
				}
			}
		}
	}
}

// adoptChains finds the Service of a chain that no Service's rule leads to by the chain's own comments, and learns what the
// save as a whole shows: which traffic kube-proxy masquerades.
func (a *audit) adoptChains() {
	if a.nat == nil {
		return
	}
	detectors := map[string]int{}
	for c := range a.in(a.nat) {
		if kind, _ := serviceChain(c.Name); c.left || kind != "SVC" && kind != "SVL" {
			continue
		}
		for i := 0; i < len(c.Rules) && c.Rules[i].Target == "KUBE-MARK-MASQ"; i++ {
			r := &c.Rules[i]
			name, what := portal(r.Comment)
			if what != "cluster IP" {
				continue
			}
			detectors[a.detectorOf(r)]++
			if c.owner == nil && !c.blamed {
				if n := a.node(name, r.Protocol); c.owner != n {
					a.about("kubeproxy.service.hash", "nat", c, r, n, "%s (%s) hashes to %s, but its rule is in %s",
						n.name, n.proto, a.hash.sum16(n.name, n.proto), c.Name)
				}
			}
		}
	}
	most := 0
	for d, n := range detectors {
		if n > most || n == most && d < a.detector {
			a.detector, most = d, n
		}
	}
}

// detectorOf returns in words which traffic a MARK-MASQ rule marks.
func (a *audit) detectorOf(r *ruleset.Rule) string {
	switch {
	case r.Has(ruleset.BySource | ruleset.NotSource):
		return "not from " + r.Source
	case r.Has(ruleset.BySource):
		return "from " + r.Source
	case r.Has(ruleset.ByInterface | ruleset.NotInterface):
		return "not from interface " + r.Extra().In
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

// judgePortals: the addresses in a Service's other rules must lead there.
func (a *audit) judgePortals(n *node) {
	if a.broken[n.name] || !n.reached || a.portalsEmpty {
		return
	}
	if n.loopback != nil && n.nodePort != nil && n.loopback.Port != n.nodePort.Port {
		a.about("kubeproxy.service.address", "nat", nil, n.loopback, n, "the node port is %s here and %s in line %d",
			n.loopback.Port, n.nodePort.Port, n.nodePort.Line)
		return
	}
	if n.loopback != nil && n.nodePort == nil && !a.portsDamaged {
		a.about("kubeproxy.nodeports.missing", "nat", nil, n.loopback, n, "node port %s is answered on 127.0.0.0/8 only", n.loopback.Port)
		return
	}
	for _, c := range []*chain{n.svc, n.svl} {
		if n.cluster != nil || c == nil || c.blamed || c.Refs == 0 {
			continue
		}
		for i := 0; i < len(c.Rules) && c.Rules[i].Target == "KUBE-MARK-MASQ"; i++ {
			r := &c.Rules[i]
			if of, what := portal(r.Comment); of == n.name && what == "cluster IP" {
				a.about("kubeproxy.service.portal", "nat", c, r, n, "%s has ClusterIP %s, but KUBE-SERVICES does not lead there",
					n.name, trimCIDR(r.Destination))
				return
			}
		}
	}
}

// judgeServiceMasquerade: from 1.22 the rule for the ClusterIP is in the Service's own chain, in every Service's or in none.
func (a *audit) judgeServiceMasquerade(n *node) {
	if a.broken[n.name] || n.cluster == nil || a.version.Min < 22 {
		return
	}
	const name = "kubeproxy.service.masquerade"
	c := a.to(n.cluster)
	if c == nil || c.owner != n || c.blamed {
		return
	}
	for i := range c.Rules {
		r := &c.Rules[i]
		of, what := portal(r.Comment)
		if r.Target != "KUBE-MARK-MASQ" || what != "cluster IP" {
			continue // until 1.23 external addresses have one here too
		}
		n.out.Masquerade = a.detectorOf(r)
		switch {
		case of != n.name:
			a.about("kubeproxy.service.hash", "nat", c, r, n, "the rule is for %s, the chain is that of %s", of, n.name)
		case r.Destination != n.cluster.Destination || r.Port != n.cluster.Port || r.Protocol != n.cluster.Protocol:
			a.about("kubeproxy.service.address", "nat", c, r, n, "%s is %s %s %s here and %s %s %s in line %d", n.name,
				r.Destination, r.Protocol, r.Port, n.cluster.Destination, n.cluster.Protocol, n.cluster.Port, n.cluster.Line)
		case n.out.Masquerade != a.detector:
			a.about(name, "nat", c, r, n, "%s masquerades %s, other Services %s", n.name, n.out.Masquerade, a.detector)
		}
		return
	}
	if a.detector != "" && len(c.Rules) > 0 {
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
	for c := range a.in(a.nat) {
		kind, hash := serviceChain(c.Name)
		if kind == "" || !c.Declared() || c.Refs > 0 || c.blamed || c.owner != nil && a.isBroken(c.owner) {
			continue
		}
		if kind == "SEP" && a.lostBy(broken, c, hash) || kind == "EXT" && a.opts.unled() {
			continue
		}
		if kind == "SEP" && len(c.Rules) > 0 && c.owner == nil {
			c.owner = a.commented(&c.Rules[0])
		}
		a.about("kubeproxy.chain.unreferenced", "nat", c, nil, nil, "no rule of table nat leads to %s", c.Name)
	}
}

// lostBy reports whether an endpoint's chain is out of use because its Service is broken.
func (a *audit) lostBy(broken []*node, c *chain, hash string) bool {
	if len(broken) > 64 {
		return true // too many causes
	}
	dnat := c.dnat()
	for _, n := range broken {
		if dnat != nil && string(a.hash.sum16(n.name, n.proto, dnat.To)) == hash {
			return true
		}
		if len(c.Rules) > 0 && strings.TrimSuffix(c.Rules[0].Comment, ":") == n.out.Name {
			return true
		}
	}
	return false
}

// commented finds the Service that a rule's comment names.
func (a *audit) commented(r *ruleset.Rule) *node {
	for _, proto := range []string{"tcp", "udp", "sctp"} {
		if n := a.byName[nodeKey{r.Comment, proto}]; n != nil {
			return n
		}
	}
	return nil
}
