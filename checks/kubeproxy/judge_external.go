package kubeproxy

import "strings"

// judgeExternal: invariant 8, the KUBE-EXT chain (1.24 and later). Policy Cluster marks everything and goes to SVC. Policy Local
// sends pods to SVC, marks what this node itself sends and sends it to SVC, and leaves the rest to SVL if there are local endpoints.
func (a *audit) judgeExternal(n *node) {
	c := n.ext
	if c.blamed {
		return
	}
	var e external
	for r := c.first; r != nil; r = r.next {
		if !e.sort(r, n) {
			if r.jump == nil && len(r.target) > 5 && r.target[:5] == "KUBE-" {
				return // reported as undeclared
			}
			if kind, _ := serviceChain(r.target); kind != "" {
				a.about("kubeproxy.external.dispatch", "nat", c, r, n, "%s leads to %s, a chain of another Service", c.name, r.target)
				return
			}
			a.about("kubeproxy.chain.unexpected-rule", "nat", c, r, n, "kube-proxy writes no such rule into %s", c.name)
			return
		}
	}
	if c.first == nil {
		a.about("kubeproxy.external.empty", "nat", c, nil, n, "%s has no rules: external traffic is not answered", c.name)
		return
	}
	n.out.ExternalLocal = e.local()
	if name, r, why := e.judge(n, podRange(a.detector)); name != "" {
		a.about("kubeproxy.external."+name, "nat", c, r, n, "%s: %s", c.name, why)
	}
}

// podRange is the range or interface by which kube-proxy tells pods, "" if it does not: of "not from interface cni0" it is cni0.
func podRange(detector string) string {
	rest, ok := strings.CutPrefix(detector, "not from ")
	if !ok {
		return ""
	}
	return strings.TrimPrefix(rest, "interface ")
}

// external holds the rules of a KUBE-EXT chain by what they do.
type external struct {
	mark, cluster         *rule // policy Cluster
	pod, markHost, toHost *rule // policy Local: short circuits
	toLocal               *rule
}

// sort puts a rule in its place; false if it has none.
func (e *external) sort(r *rule, n *node) bool {
	place := (**rule)(nil)
	switch {
	case r.target == "KUBE-MARK-MASQ" && r.always():
		place = &e.mark
	case r.target == "KUBE-MARK-MASQ" && r.flags&conds == condSrcType:
		place = &e.markHost
	case r.jump == nil:
	case r.jump == n.svc && r.always():
		place = &e.cluster
	case r.jump == n.svc && r.flags&conds == condSrcType:
		place = &e.toHost
	case r.jump == n.svc && r.flags&conds&^(condSrc|condIface) == 0:
		place = &e.pod
	case r.jump == n.svl && r.always():
		place = &e.toLocal
	}
	if place == nil || *place != nil {
		return false
	}
	*place = r
	return true
}

func (e *external) local() bool {
	return e.pod != nil || e.markHost != nil || e.toHost != nil || e.toLocal != nil
}

// judge returns the last part of a finding's name, the rule to blame and the reason; an empty name when all is well.
func (e *external) judge(n *node, detector string) (name string, r *rule, why string) {
	if !e.local() {
		switch {
		case e.cluster == nil:
			return "dispatch", e.mark, "nothing leads to the Service's endpoints"
		case e.mark == nil:
			return "masquerade", e.cluster, "external traffic is not masqueraded: replies from other nodes' endpoints bypass this node"
		case e.mark.line > e.cluster.line:
			return "order", e.mark, "traffic is dispatched before it is marked"
		}
		return "", nil, ""
	}
	switch {
	case e.mark != nil:
		return "masquerade", e.mark, "policy Local keeps the client's address, but everything is masqueraded"
	case e.cluster != nil:
		return "dispatch", e.cluster, "policy Local, but everything goes to all endpoints"
	case e.markHost == nil:
		return "masquerade", e.toHost, "what the node itself sends is not masqueraded"
	case e.toHost == nil:
		return "dispatch", e.markHost, "what the node itself sends does not reach the endpoints"
	case e.pod == nil && detector != "":
		return "pod", e.markHost, "pods of this node cannot reach endpoints on others"
	case e.pod != nil && detector != "" && detector != e.pod.src && detector != e.pod.iface():
		return "pod", e.pod, "pods are told by another range here than for ClusterIPs: " + detector
	case e.toLocal == nil && n.svl != nil:
		return "dispatch", e.toHost, "nothing leads to " + n.svl.name + ", the local endpoints"
	case e.markHost.line > e.toHost.line, e.pod != nil && e.pod.line > e.markHost.line,
		e.toLocal != nil && (e.toLocal.line < e.toHost.line || e.pod != nil && e.toLocal.line < e.pod.line):
		return "order", e.markHost, "the rules are out of order"
	}
	return "", nil, ""
}
