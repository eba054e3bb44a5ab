package proxy

import (
	"slices"
	"strconv"
	"strings"

	"nodegate/internal/ruleset"
)

// splitPortal splits a comment of KUBE-SERVICES into the Service port and the purpose of the rule. Large-cluster mode
// keeps these comments.
func splitPortal(comment string) (name, what string) {
	for _, what := range []string{"cluster IP", "external IP", "loadbalancer IP", "has no endpoints", "has no local endpoints"} {
		if name, ok := strings.CutSuffix(comment, what); ok && strings.HasSuffix(name, " ") {
			return name[:len(name)-1], what
		}
	}
	return "", ""
}

// node returns the Service of that name and protocol, and links the chains that carry its hash.
func (a *audit) node(name, proto string) *node {
	k := nodeKey{name, proto}
	if n := a.byName[k]; n != nil {
		return n
	}
	n := &node{nodeKey: k, out: Service{Name: strings.TrimSuffix(name, ":"), Protocol: proto, Family: a.save.Family}}
	a.byName[k] = n
	a.nodes = append(a.nodes, n)
	h := a.hash.sum16(name, proto)
	n.svc = a.ownChain(n, "SVC", h)
	n.svl = a.ownChain(n, "SVL", h)
	n.ext = a.ownChain(n, "EXT", h)
	n.fw = a.ownChain(n, "FW", h)
	n.xlb = a.ownChain(n, "XLB", h)
	return n
}

func (a *audit) ownChain(n *node, kind string, hash []byte) *chain {
	c := a.kinds[kind][string(hash)]
	if c == nil || c.left {
		return nil
	}
	c.owner = n
	return c
}

// ownerOf returns the Service port that a rule of KUBE-SERVICES or KUBE-NODEPORTS serves, and the purpose of its target.
// The name of the rule's comment counts only if the target's name, a hash of the Service, agrees. If another program has
// changed the comment, the comments of the target's own rules name the Service. If the comment names another Service of
// these rules, either is wrong, and only the address decides.
func (a *audit) ownerOf(r *ruleset.Rule, name string) (owner, what string) {
	to := a.target(r)
	if to == nil {
		return name, ""
	}
	kind, hash := serviceChain(to.Name)
	what = map[string]string{"SVC": "cluster IP", "SVL": "cluster IP", "EXT": "external IP", "XLB": "loadbalancer IP",
		"FW": "loadbalancer IP"}[kind]
	said := string(a.hash.sum16(name, r.Protocol))
	if what == "" || said == hash {
		return name, what
	}
	rules := slices.Clone(to.Rules)
	for i := range to.Rules {
		if next := a.target(&to.Rules[i]); next != nil {
			rules = append(rules, next.Rules...)
		}
	}
	another := slices.ContainsFunc([]string{"SVC", "SVL", "EXT", "XLB", "FW"}, func(kind string) bool { return a.kinds[kind][said] != nil })
	same := func(own ruleset.Rule) bool {
		return own.Target == "KUBE-MARK-MASQ" && own.Destination == r.Destination && own.Port == r.Port && own.Protocol == r.Protocol
	}
	if (another || what == "cluster IP") && !slices.ContainsFunc(to.Rules, same) {
		return name, what
	}
	for i := range rules {
		for _, word := range strings.Fields(rules[i].Comment) {
			if strings.Contains(word, "/") && string(a.hash.sum16(word, r.Protocol)) == hash {
				return word, what
			}
		}
	}
	return name, what
}

// portalKey holds the match of a rule for a Service.
type portalKey struct{ address, proto, port string }

// findServices walks through the rules that name Services and judges them.
func (a *audit) findServices() {
	seen := map[portalKey]*ruleset.Rule{}
	if c := a.chain(a.nat, "KUBE-SERVICES"); c != nil {
		seen = make(map[portalKey]*ruleset.Rule, len(c.Rules))
		a.byName = make(map[nodeKey]*node, len(c.Rules))
		a.nodes = make([]*node, 0, len(c.Rules))
		a.portalsEmpty = len(c.Rules) == 0
		if a.portalsEmpty && !c.blamed && !a.dispatchesNone() {
			a.addFinding("kubeproxy.service.portals", "nat", c, nil, nil, "KUBE-SERVICES is empty: no Service address is handled")
		}
		var nodePorts *ruleset.Rule
		for i := range c.Rules {
			r := &c.Rules[i]
			switch {
			case r.Target == "KUBE-NODEPORTS" || strings.HasPrefix(r.Comment, "kubernetes service nodeports"):
				a.judgeNodePortRule(c, r)
				if nodePorts == nil {
					nodePorts = r
				}
				continue
			case nodePorts != nil:
				a.addFinding("kubeproxy.nodeports.order", "nat", c, nodePorts, nil,
					"rules for Services follow the jump to KUBE-NODEPORTS: node port rules may match their packets")
				nodePorts = nil
			}
			a.judgePortal(c, r, seen)
		}
		a.judgeNodePortJump(c)
	}
	if c := a.chain(a.nat, "KUBE-NODEPORTS"); c != nil {
		for i := range c.Rules {
			r := &c.Rules[i]
			a.judgeNodePort(c, r, seen)
		}
	}
	for _, name := range []string{"KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES"} {
		if c := a.chain(a.filter, name); c != nil {
			for i := range c.Rules {
				r := &c.Rules[i]
				a.judgeBlocked(c, r)
			}
		}
	}
}

// judgePortal checks invariant 5: the target must carry the hash of the Service.
func (a *audit) judgePortal(c *chain, r *ruleset.Rule, seen map[portalKey]*ruleset.Rule) {
	name, what := splitPortal(r.Comment)
	if owner, of := a.ownerOf(r, name); owner != name {
		name, what = owner, of
	}
	if name == "" || r.Target != "KUBE-MARK-MASQ" && !strings.HasPrefix(r.Target, "KUBE-") || strings.HasPrefix(what, "has no") {
		a.breakNamed(r)
		if a.target(r) != nil {
			a.target(r).blamed = true
		}
		a.addFinding("kubeproxy.chain.unexpected-rule", "nat", c, r, nil, "kube-proxy does not write this rule into KUBE-SERVICES")
		return
	}
	n := a.node(name, r.Protocol)
	n.reached = true
	if r.Target == "KUBE-MARK-MASQ" { // until 1.21
		if a.detectorOf(r) != "" && what == "cluster IP" {
			n.out.Masquerade = a.detectorOf(r)
		}
		return
	}
	const address = ruleset.ByDestination | ruleset.ByPort
	if !r.Has(address) || r.Has(ruleset.NotDestination) || what == "cluster IP" && r.Conditions()&^(address|ruleset.ByProtocol) != 0 {
		a.addFinding("kubeproxy.service.address", "nat", c, r, n, "the rule for %s does not match one address and port", n.name)
		return
	}
	ip := trimCIDR(r.Destination)
	switch what {
	case "cluster IP":
		n.cluster = r
		n.out.ClusterIP, n.out.Port = ip, atoi(r.Port)
		n.out.InternalLocal = a.target(r) != nil && a.target(r) == n.svl
	case "loadbalancer IP":
		if n.fw == nil || a.target(r) == n.fw {
			n.out.LoadBalancerIPs = appendNew(n.out.LoadBalancerIPs, ip)
			n.outside = append(n.outside, r)
			break
		}
		fallthrough // it does not lead to the chain of the source ranges
	case "external IP":
		n.out.ExternalIPs = appendNew(n.out.ExternalIPs, ip)
		n.outside = append(n.outside, r)
	}
	a.judgeTarget(c, r, n)
	a.judgeTwice(c, r, n, seen, portalKey{r.Destination, r.Protocol, r.Port})
}

// judgeTarget checks that the target is a chain with the Service's hash.
func (a *audit) judgeTarget(c *chain, r *ruleset.Rule, n *node) {
	to := a.target(r)
	if to == nil || to.owner == n { // isPartial has reported a missing chain
		return
	}
	a.addFinding("kubeproxy.service.hash", "nat", c, r, n, "the hash of %s (%s) is %s, but the rule jumps to %s",
		n.name, n.proto, a.hash.sum16(n.name, n.proto), r.Target)
	c.blamed = false // it also serves other Services
	to.blamed = true
	a.portsDamaged = a.portsDamaged || c.Name == "KUBE-NODEPORTS"
}

// judgeTwice reports a second rule for an address: the first one matches every packet.
func (a *audit) judgeTwice(c *chain, r *ruleset.Rule, n *node, seen map[portalKey]*ruleset.Rule, key portalKey) {
	first := seen[key]
	if first == nil {
		seen[key] = r
		return
	}
	if first.Target != r.Target && !a.broken[n.name] {
		a.addFinding("kubeproxy.service.duplicate", "nat", c, r, n, "line %d already handles %s %s %s for %s",
			first.Line, key.address, key.proto, key.port, first.Target)
		c.blamed = false
	}
}

// judgeNodePort judges a rule of KUBE-NODEPORTS. Its comment contains only the Service's name.
func (a *audit) judgeNodePort(c *chain, r *ruleset.Rule, seen map[portalKey]*ruleset.Rule) {
	name, _ := a.ownerOf(r, r.Comment)
	if !strings.Contains(name, "/") || !strings.HasPrefix(r.Target, "KUBE-") || !r.Has(ruleset.ByPort) {
		a.breakNamed(r)
		a.portsDamaged = true
		a.addFinding("kubeproxy.chain.unexpected-rule", "nat", c, r, nil, "kube-proxy does not write this rule into KUBE-NODEPORTS")
		return
	}
	n := a.node(name, r.Protocol)
	n.reached = true
	n.out.NodePort = atoi(r.Port)
	if r.Target == "KUBE-MARK-MASQ" { // until 1.23
		return
	}
	if r.Destination == "" {
		n.nodePort = r
	} else {
		n.loopback = r
	}
	a.judgeTarget(c, r, n)
	a.judgeTwice(c, r, n, seen, portalKey{"node port " + r.Destination, r.Protocol, r.Port})
}

// judgeNodePortRule checks that the jump applies to this node's own addresses, either listed or all.
func (a *audit) judgeNodePortRule(c *chain, r *ruleset.Rule) {
	ports := a.chain(a.nat, "KUBE-NODEPORTS")
	switch kinds := r.Conditions(); {
	case a.target(r) != ports || ports == nil || ports.blamed: // no rule leads there, which is reported below
	case kinds == ruleset.ByDestination && !r.Has(ruleset.NotDestination), kinds&^ruleset.ByDestination == ruleset.ToLocal:
		a.nodePorts = true
	default:
		a.addFinding("kubeproxy.nodeports.condition", "nat", c, r, nil, "the jump does not match exactly the addresses of this node")
		c.blamed, ports.blamed = false, true
	}
}

// breakNamed marks the Service in a damaged rule's comment as broken, so that consequences are not reported too.
func (a *audit) breakNamed(r *ruleset.Rule) {
	if name, _, _ := strings.Cut(r.Comment, " "); strings.Contains(name, "/") {
		a.broken[name] = true
	}
}

// judgeNodePortJump checks the second half of invariant 7.
func (a *audit) judgeNodePortJump(c *chain) {
	ports := a.chain(a.nat, "KUBE-NODEPORTS")
	if ports == nil || len(ports.Rules) == 0 || ports.Refs > 0 || ports.blamed || a.portalsEmpty {
		return
	}
	if a.opts.NodePortAddresses != nil && a.opts.NodePortAddresses() {
		return // this node may have none of the configured addresses
	}
	name := "kubeproxy.nodeports.missing"
	if a.opts.NodePortAddresses == nil {
		name = "kubeproxy.nodeports.nowhere"
	}
	a.addFinding(name, "nat", c, nil, nil, "KUBE-SERVICES has no jump to KUBE-NODEPORTS: no node port is served")
	c.blamed = false
}

// judgeBlocked checks invariant 6: the filter rules for Services without endpoints.
func (a *audit) judgeBlocked(c *chain, r *ruleset.Rule) {
	name, what := splitPortal(r.Comment)
	want := "REJECT"
	switch what {
	case "has no local endpoints":
		want = "DROP"
	case "has no endpoints":
	default:
		a.addFinding("kubeproxy.chain.unexpected-rule", "filter", c, r, nil, "kube-proxy does not write this rule into %s", c.Name)
		return
	}
	n := a.node(name, r.Protocol)
	n.reached = true
	if r.Target != want {
		a.addFinding("kubeproxy.service.reject", "filter", c, r, n, "%s %s: the target must be %s, not %s", n.name, what, want, r.Target)
		return
	}
	const port = ruleset.ByProtocol | ruleset.ByPort
	if k := r.Conditions(); k != ruleset.ByDestination|port && (c.Name != "KUBE-EXTERNAL-SERVICES" || k != ruleset.ToLocal|port) {
		a.addFinding("kubeproxy.service.address", "filter", c, r, n, "the rule for %s does not match one address and port", n.name)
		return
	}
	switch {
	case c.Name == "KUBE-EXTERNAL-SERVICES" && r.Destination == "":
		n.out.NodePort, n.blockedPort = atoi(r.Port), r
		n.out.ExternalLocal = n.out.ExternalLocal || want == "DROP"
	case c.Name == "KUBE-EXTERNAL-SERVICES":
		n.out.ExternalIPs = appendNew(n.out.ExternalIPs, trimCIDR(r.Destination))
		n.blocked = append(n.blocked, r)
		n.out.ExternalLocal = n.out.ExternalLocal || want == "DROP"
	case n.cluster != nil && n.cluster.Destination == r.Destination && n.cluster.Port == r.Port:
		a.addFinding("kubeproxy.service.conflict", "filter", c, r, n, "%s is blocked here, but sent to %s in line %d",
			n.name, n.cluster.Target, n.cluster.Line)
	default:
		n.out.Blocked = strings.ToLower(want)
		n.out.ClusterIP, n.out.Port = trimCIDR(r.Destination), atoi(r.Port)
		n.out.InternalLocal = want == "DROP"
	}
	if want == "REJECT" && a.dispatched(n, r) {
		a.addFinding("kubeproxy.service.conflict", "filter", c, r, n, "%s has no endpoints, but %s sends connections to endpoints",
			n.name, n.ext.Name)
	}
}

// dispatched reports whether r sends connections to a chain of n. A Service without endpoints has no chain for external traffic either.
func (a *audit) dispatched(n *node, r *ruleset.Rule) bool {
	return !a.broken[n.name] && a.chains[r.Chain].Name == "KUBE-EXTERNAL-SERVICES" && n.ext != nil && n.ext.Refs > 0
}

// maxAddresses limits the addresses that are stored for one Service.
const maxAddresses = 256

func appendNew(list []string, s string) []string {
	if len(list) >= maxAddresses || slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

func atoi(s string) int {
	n, _ := strconv.Atoi(s) // 0 means unknown
	return n
}

// trimCIDR removes the prefix length of a single address: "10.96.0.1/32".
func trimCIDR(s string) string {
	if rest, ok := strings.CutSuffix(s, "/32"); ok && !strings.Contains(rest, ":") {
		return rest
	}
	return strings.TrimSuffix(s, "/128")
}
