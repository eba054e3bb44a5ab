package kubeproxy

import (
	"slices"
	"strconv"
	"strings"
)

// portal takes a comment of KUBE-SERVICES apart: the Service port and what the rule is for. These comments survive
// large-cluster mode.
func portal(comment string) (name, what string) {
	for _, what := range []string{"cluster IP", "external IP", "loadbalancer IP", "has no endpoints", "has no local endpoints"} {
		if name, ok := strings.CutSuffix(comment, what); ok && strings.HasSuffix(name, " ") {
			return name[:len(name)-1], what
		}
	}
	return "", ""
}

// node returns the Service of that name and protocol and links the chains that carry its hash.
func (a *audit) node(name, proto string) *node {
	k := nodeKey{name, proto}
	if n := a.byName[k]; n != nil {
		return n
	}
	n := &node{nodeKey: k, out: Service{Name: strings.TrimSuffix(name, ":"), Protocol: proto, Family: a.save.family}}
	a.byName[k] = n
	a.nodes = append(a.nodes, n)
	h := a.hash.sum16(name, proto)
	n.svc = a.own(n, "SVC", h)
	n.svl = a.own(n, "SVL", h)
	n.ext = a.own(n, "EXT", h)
	n.fw = a.own(n, "FW", h)
	n.xlb = a.own(n, "XLB", h)
	return n
}

func (a *audit) own(n *node, kind string, hash []byte) *chain {
	c := a.kinds[kind][string(hash)]
	if c != nil {
		c.owner = n
	}
	return c
}

// portalKey is what a rule for a Service matches.
type portalKey struct{ address, proto, port string }

// findServices walks the rules that name Services, and judges them on the way.
func (a *audit) findServices() {
	seen := map[portalKey]*rule{}
	if c := a.nat.chain("KUBE-SERVICES"); c != nil {
		seen = make(map[portalKey]*rule, c.n)
		a.byName = make(map[nodeKey]*node, c.n)
		a.nodes = make([]*node, 0, c.n)
	}
	if c := a.nat.chain("KUBE-SERVICES"); c != nil {
		a.portalsEmpty = c.n == 0
		if a.portalsEmpty && !c.blamed {
			a.about("kubeproxy.service.portals", "nat", c, nil, nil, "KUBE-SERVICES has no rules: no Service address leads anywhere")
		}
		var nodePorts *rule
		for r := c.first; r != nil; r = r.next {
			switch {
			case r.target == "KUBE-NODEPORTS" || strings.HasPrefix(r.comment, "kubernetes service nodeports"):
				a.judgeNodePortRule(c, r)
				if nodePorts == nil {
					nodePorts = r
				}
				continue
			case nodePorts != nil:
				a.about("kubeproxy.nodeports.order", "nat", c, nodePorts, nil, "rules for Services follow the KUBE-NODEPORTS jump: a node port may take their packets")
				nodePorts = nil
			}
			a.judgePortal(c, r, seen)
		}
		a.judgeNodePortJump(c)
	}
	if c := a.nat.chain("KUBE-NODEPORTS"); c != nil {
		for r := c.first; r != nil; r = r.next {
			a.judgeNodePort(c, r, seen)
		}
	}
	for _, name := range []string{"KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES"} {
		if c := a.filter.chain(name); c != nil {
			for r := c.first; r != nil; r = r.next {
				a.judgeBlocked(c, r)
			}
		}
	}
}

// judgePortal: invariant 5. The comment's Service must hash to the target.
func (a *audit) judgePortal(c *chain, r *rule, seen map[portalKey]*rule) {
	name, what := portal(r.comment)
	if name == "" || r.target != "KUBE-MARK-MASQ" && !strings.HasPrefix(r.target, "KUBE-") || strings.HasPrefix(what, "has no") {
		a.breakNamed(r)
		if r.jump != nil {
			r.jump.blamed = true
		}
		a.about("kubeproxy.chain.unexpected-rule", "nat", c, r, nil, "kube-proxy writes no such rule into KUBE-SERVICES")
		return
	}
	n := a.node(name, r.proto)
	n.reached = true
	if r.target == "KUBE-MARK-MASQ" { // until 1.21
		if a.detectorOf(r) != "" && what == "cluster IP" {
			n.out.Masquerade = a.detectorOf(r)
		}
		return
	}
	if !r.has(condDst|condDport) || r.has(notDst) || what == "cluster IP" && r.flags&conds&^(condDst|condDport|condProto) != 0 {
		a.about("kubeproxy.service.address", "nat", c, r, n, "the rule for %s does not match one address and port", n.name)
		return
	}
	address := trimCIDR(r.dst)
	switch what {
	case "cluster IP":
		n.cluster = r
		n.out.ClusterIP, n.out.Port = address, atoi(r.dport)
		n.out.InternalLocal = r.jump != nil && r.jump == n.svl
	case "external IP":
		n.out.ExternalIPs = appendNew(n.out.ExternalIPs, address)
	case "loadbalancer IP":
		n.out.LoadBalancerIPs = appendNew(n.out.LoadBalancerIPs, address)
	}
	a.judgeTarget(c, r, n)
	a.judgeTwice(c, r, n, seen, portalKey{r.dst, r.proto, r.dport})
}

// judgeTarget: the target must be a chain with the Service's hash.
func (a *audit) judgeTarget(c *chain, r *rule, n *node) {
	if r.jump == nil { // reported as undeclared
		a.broken[n.name] = true
		return
	}
	if r.jump.owner == n {
		return
	}
	a.about("kubeproxy.service.hash", "nat", c, r, n, "%s (%s) hashes to %s, but the rule leads to %s",
		n.name, n.proto, a.hash.sum16(n.name, n.proto), r.target)
	c.blamed = false // it serves others too
	r.jump.blamed = true
	a.portsDamaged = a.portsDamaged || c.name == "KUBE-NODEPORTS"
}

// judgeTwice: the first of two rules for one address takes every packet.
func (a *audit) judgeTwice(c *chain, r *rule, n *node, seen map[portalKey]*rule, key portalKey) {
	first := seen[key]
	if first == nil {
		seen[key] = r
		return
	}
	if first.target != r.target && !a.broken[n.name] {
		a.about("kubeproxy.service.duplicate", "nat", c, r, n, "line %d already sends %s %s %s to %s", first.line, key.address, key.proto, key.port, first.target)
		c.blamed = false
	}
}

// judgeNodePort: rules of KUBE-NODEPORTS carry only the Service's name.
func (a *audit) judgeNodePort(c *chain, r *rule, seen map[portalKey]*rule) {
	if !strings.Contains(r.comment, "/") || !strings.HasPrefix(r.target, "KUBE-") || !r.has(condDport) {
		a.breakNamed(r)
		a.portsDamaged = true
		a.about("kubeproxy.chain.unexpected-rule", "nat", c, r, nil, "kube-proxy writes no such rule into KUBE-NODEPORTS")
		return
	}
	n := a.node(r.comment, r.proto)
	n.reached = true
	n.out.NodePort = atoi(r.dport)
	if r.target == "KUBE-MARK-MASQ" { // until 1.23
		return
	}
	if r.dst == "" {
		n.nodePort = r
	} else {
		n.loopback = r
	}
	a.judgeTarget(c, r, n)
	a.judgeTwice(c, r, n, seen, portalKey{"node port " + r.dst, r.proto, r.dport})
}

// judgeNodePortRule: the jump is for this node's own addresses, named one by one or all.
func (a *audit) judgeNodePortRule(c *chain, r *rule) {
	ports := a.nat.chain("KUBE-NODEPORTS")
	switch kinds := r.flags & conds; {
	case r.jump != ports || ports == nil || ports.blamed: // nothing leads there, which is said below
		if r.jump == nil && ports != nil && strings.HasPrefix(r.target, "KUBE-") {
			ports.blamed = true // misspelt: reported as undeclared
		}
	case kinds == condDst && !r.has(notDst), kinds&^condDst == condDstType:
	default:
		a.about("kubeproxy.nodeports.condition", "nat", c, r, nil, "the jump is not for the addresses of this node")
		c.blamed, ports.blamed = false, true
	}
}

// breakNamed notes the Service that a damaged rule's comment names, so that what follows is not reported too.
func (a *audit) breakNamed(r *rule) {
	if name, _, _ := strings.Cut(r.comment, " "); strings.Contains(name, "/") {
		a.broken[name] = true
	}
}

// judgeNodePortJump: invariant 7, its second half.
func (a *audit) judgeNodePortJump(c *chain) {
	ports := a.nat.chain("KUBE-NODEPORTS")
	if ports == nil || ports.n == 0 || ports.refs > 0 || ports.blamed || a.portalsEmpty {
		return
	}
	a.about("kubeproxy.nodeports.missing", "nat", c, nil, nil, "KUBE-SERVICES has no jump to KUBE-NODEPORTS: no node port is answered")
	c.blamed = false
}

// judgeBlocked: invariant 6. Rules of the filter table for Services without endpoints.
func (a *audit) judgeBlocked(c *chain, r *rule) {
	name, what := portal(r.comment)
	want := "REJECT"
	switch what {
	case "has no local endpoints":
		want = "DROP"
	case "has no endpoints":
	default:
		a.about("kubeproxy.chain.unexpected-rule", "filter", c, r, nil, "kube-proxy writes no such rule into %s", c.name)
		return
	}
	n := a.node(name, r.proto)
	n.reached = true
	if r.target != want {
		a.about("kubeproxy.service.reject", "filter", c, r, n, "%s %s: %s is wanted, not %s", n.name, what, want, r.target)
		return
	}
	local := flags(0)
	if c.name == "KUBE-EXTERNAL-SERVICES" {
		local = condDstType
	}
	if k := r.flags & conds; k != condDst|condProto|condDport && (local == 0 || k != local|condProto|condDport) {
		a.about("kubeproxy.service.address", "filter", c, r, n, "the rule for %s does not match one address and port", n.name)
		return
	}
	switch {
	case c.name == "KUBE-EXTERNAL-SERVICES" && r.dst == "":
		n.out.NodePort = atoi(r.dport)
		n.out.ExternalLocal = n.out.ExternalLocal || want == "DROP"
	case c.name == "KUBE-EXTERNAL-SERVICES":
		n.out.ExternalIPs = appendNew(n.out.ExternalIPs, trimCIDR(r.dst))
		n.out.ExternalLocal = n.out.ExternalLocal || want == "DROP"
	case n.cluster != nil && n.cluster.dst == r.dst && n.cluster.dport == r.dport:
		a.about("kubeproxy.service.conflict", "filter", c, r, n, "%s is blocked here and dispatched to %s in line %d", n.name, n.cluster.target, n.cluster.line)
	default:
		n.out.Blocked = strings.ToLower(want)
		n.out.ClusterIP, n.out.Port = trimCIDR(r.dst), atoi(r.dport)
		n.out.InternalLocal = want == "DROP"
	}
	if want == "REJECT" && a.dispatched(n, r) {
		a.about("kubeproxy.service.conflict", "filter", c, r, n, "%s has no endpoints, yet %s dispatches to some", n.name, n.ext.name)
	}
}

// dispatched: a Service without endpoints has no chain for external traffic either.
func (a *audit) dispatched(n *node, r *rule) bool {
	return !a.broken[n.name] && r.chain.name == "KUBE-EXTERNAL-SERVICES" && n.ext != nil && n.ext.refs > 0
}

// maxAddresses bounds the addresses that are kept of one Service.
const maxAddresses = 256

func appendNew(list []string, s string) []string {
	if len(list) >= maxAddresses || slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

func atoi(s string) int {
	n, _ := strconv.Atoi(s) // 0 is "not known"
	return n
}

// trimCIDR takes the length off a single address: "10.96.0.1/32".
func trimCIDR(s string) string {
	if rest, ok := strings.CutSuffix(s, "/32"); ok && !strings.Contains(rest, ":") {
		return rest
	}
	return strings.TrimSuffix(s, "/128")
}
