package proxy

import (
	"strings"

	"nodegate/internal/ruleset"
)

// largeCluster is the number of endpoints above which kube-proxy omits comments and lets unused chains stay for a time.
const largeCluster = 1000

// findLeft determines whether the save is of large-cluster mode, and then which Service chains are unused. kube-proxy deletes chains
// without references in the first sync that begins 30 s after it last checked for them (syncProxyRules of pkg/proxy/iptables), which may
// be an hour later. Such chains give no information about their Services.
func (a *audit) findLeft() {
	if a.nat == nil {
		return
	}
	var roots, services []*chain // roots may lead to Services
	endpoints := 0
	for c := range a.chainsOf(a.nat) {
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
			if to := a.target(&c.Rules[i]); to != nil && to.left {
				to.left = false
				if kind, _ := serviceChain(to.Name); kind != "SVC" && kind != "SVL" { // these lead only to endpoints
					roots = append(roots, to)
				}
			}
		}
	}
}

// adoptChains finds the Service of a chain from the chain's own comments if no rule of a Service
// leads to it. It also determines which traffic kube-proxy masquerades.
func (a *audit) adoptChains() {
	if a.nat == nil {
		return
	}
	detectors := map[string]int{}
	for c := range a.chainsOf(a.nat) {
		if kind, _ := serviceChain(c.Name); c.left || kind != "SVC" && kind != "SVL" {
			continue
		}
		for i := 0; i < len(c.Rules) && c.Rules[i].Target == "KUBE-MARK-MASQ"; i++ {
			r := &c.Rules[i]
			name, what := splitPortal(r.Comment)
			if what != "cluster IP" {
				continue
			}
			detectors[a.detectorOf(r)]++
			if c.owner == nil && !c.blamed {
				if n := a.node(name, r.Protocol); c.owner != n {
					a.addFinding("kubeproxy.service.hash", "nat", c, r, n, "the hash of %s (%s) is %s, but its rule is in %s",
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

// detectorOf describes the traffic that a MARK-MASQ rule marks.
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
	a.judgeExternalPorts(n)
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

// judgePortals checks that the rules for a Service's addresses lead to its chain.
func (a *audit) judgePortals(n *node) {
	if a.broken[n.name] || !n.reached || a.portalsEmpty {
		return
	}
	if n.loopback != nil && n.nodePort != nil && n.loopback.Port != n.nodePort.Port {
		a.addFinding("kubeproxy.service.address", "nat", nil, n.loopback, n, "the node port is %s here, but %s in line %d",
			n.loopback.Port, n.nodePort.Port, n.nodePort.Line)
		return
	}
	if n.loopback != nil && n.nodePort == nil && !a.portsDamaged {
		a.addFinding("kubeproxy.nodeports.missing", "nat", nil, n.loopback, n, "node port %s is served only on 127.0.0.0/8", n.loopback.Port)
		return
	}
	for _, c := range []*chain{n.svc, n.svl} {
		if n.cluster != nil || c == nil || c.blamed || c.Refs == 0 {
			continue
		}
		for i := 0; i < len(c.Rules) && c.Rules[i].Target == "KUBE-MARK-MASQ"; i++ {
			r := &c.Rules[i]
			if of, what := splitPortal(r.Comment); of == n.name && what == "cluster IP" {
				a.addFinding("kubeproxy.service.portal", "nat", c, r, n, "%s has ClusterIP %s, but KUBE-SERVICES has no rule for it",
					n.name, trimCIDR(r.Destination))
				return
			}
		}
	}
}

// judgeServiceMasquerade: from 1.22, the masquerading rule for the ClusterIP is in the Service's
// own chain, either for every Service or for none.
func (a *audit) judgeServiceMasquerade(n *node) {
	if a.broken[n.name] || n.cluster == nil || a.version.Min < 22 {
		return
	}
	const name = "kubeproxy.service.masquerade"
	c := a.target(n.cluster)
	if c == nil || c.owner != n || c.blamed {
		return
	}
	for i := range c.Rules {
		r := &c.Rules[i]
		of, what := splitPortal(r.Comment)
		served := r.Destination == n.cluster.Destination && r.Port == n.cluster.Port && r.Protocol == n.cluster.Protocol
		if r.Target != "KUBE-MARK-MASQ" || what != "cluster IP" && !served {
			continue // until 1.23, external addresses have a rule here too
		}
		n.out.Masquerade = a.detectorOf(r)
		switch {
		case of != n.name && !served:
			a.addFinding("kubeproxy.service.hash", "nat", c, r, n, "the rule is for %s, but the chain belongs to %s", of, n.name)
		case !served:
			a.addFinding("kubeproxy.service.address", "nat", c, r, n, "%s is %s %s %s here, but %s %s %s in line %d", n.name,
				r.Destination, r.Protocol, r.Port, n.cluster.Destination, n.cluster.Protocol, n.cluster.Port, n.cluster.Line)
		case n.out.Masquerade != a.detector:
			a.addFinding(name, "nat", c, r, n, "%s masquerades traffic %s, other Services %s", n.name, n.out.Masquerade, a.detector)
		}
		return
	}
	if a.detector != "" && len(c.Rules) > 0 {
		a.addFinding(name, "nat", c, nil, n, "%s does not masquerade traffic to its ClusterIP (%s), but other Services do", n.name, a.detector)
	}
}

// judgeUnreferenced checks the second half of invariant 1. An unreferenced chain is valid only in large-cluster mode.
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
	for c := range a.chainsOf(a.nat) {
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
		a.addFinding("kubeproxy.chain.unreferenced", "nat", c, nil, nil, "no rule of table nat jumps to %s", c.Name)
	}
}

// lostBy reports whether an endpoint's chain is unused because its Service is broken.
func (a *audit) lostBy(broken []*node, c *chain, hash string) bool {
	if len(broken) > 64 {
		return true // too many possible causes
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

// commented returns the Service in a rule's comment.
func (a *audit) commented(r *ruleset.Rule) *node {
	for _, proto := range []string{"tcp", "udp", "sctp"} {
		if n := a.byName[nodeKey{r.Comment, proto}]; n != nil {
			return n
		}
	}
	return nil
}
