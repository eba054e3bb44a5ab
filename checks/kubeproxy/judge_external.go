package kubeproxy

import (
	"strings"

	"nodegate/internal/ruleset"
)

// judgeExternal: invariant 8, the KUBE-EXT chain (1.24 and later). Policy Cluster marks everything and goes to SVC. Policy Local
// sends pods to SVC, marks what this node itself sends and sends it to SVC, and leaves the rest to SVL if there are local endpoints.
func (a *audit) judgeExternal(n *node) {
	c := n.ext
	if c.blamed {
		return
	}
	var e external
	for i := range c.Rules {
		r := &c.Rules[i]
		if !e.sort(r, a.to(r), n) {
			if r.Jump == 0 && strings.HasPrefix(r.Target, "KUBE-") {
				return // reported as undeclared
			}
			if kind, _ := serviceChain(r.Target); kind != "" {
				a.about("kubeproxy.external.dispatch", "nat", c, r, n, "%s leads to %s, a chain of another Service", c.Name, r.Target)
				return
			}
			a.about("kubeproxy.chain.unexpected-rule", "nat", c, r, n, "kube-proxy writes no such rule into %s", c.Name)
			return
		}
	}
	if len(c.Rules) == 0 {
		a.about("kubeproxy.external.empty", "nat", c, nil, n, "%s has no rules: external traffic is not answered", c.Name)
		return
	}
	n.out.ExternalLocal = e.local()
	if name, r, why := e.judge(n, podRange(a.detector)); name != "" {
		a.about("kubeproxy.external."+name, "nat", c, r, n, "%s: %s", c.Name, why)
	}
}

// podRange returns the range or interface by which kube-proxy knows pods, "" if it does not: of "not from interface cni0" it is cni0.
func podRange(detector string) string {
	rest, ok := strings.CutPrefix(detector, "not from ")
	if !ok {
		return ""
	}
	return strings.TrimPrefix(rest, "interface ")
}

// external is the rules of a KUBE-EXT chain by what they do.
type external struct {
	mark, cluster         *ruleset.Rule // policy Cluster
	pod, markHost, toHost *ruleset.Rule // policy Local: short circuits
	toLocal               *ruleset.Rule
}

// sort puts a rule that leads to a chain in its place. It returns false if the rule has none.
func (e *external) sort(r *ruleset.Rule, to *chain, n *node) bool {
	place := (**ruleset.Rule)(nil)
	switch {
	case r.Target == "KUBE-MARK-MASQ" && r.Always():
		place = &e.mark
	case r.Target == "KUBE-MARK-MASQ" && r.Conditions() == ruleset.FromLocal:
		place = &e.markHost
	case to == nil:
	case to == n.svc && r.Always():
		place = &e.cluster
	case to == n.svc && r.Conditions() == ruleset.FromLocal:
		place = &e.toHost
	case to == n.svc && r.Conditions()&^(ruleset.BySource|ruleset.ByInterface) == 0:
		place = &e.pod
	case to == n.svl && r.Always():
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
func (e *external) judge(n *node, detector string) (name string, r *ruleset.Rule, why string) {
	if !e.local() {
		switch {
		case e.cluster == nil:
			return "dispatch", e.mark, "nothing leads to the Service's endpoints"
		case e.mark == nil:
			return "masquerade", e.cluster, "external traffic is not masqueraded: replies from other nodes' endpoints bypass this node"
		case e.mark.Line > e.cluster.Line:
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
	case e.pod != nil && detector != "" && detector != e.pod.Source && detector != e.pod.Extra().In:
		return "pod", e.pod, "pods are told apart by another range here than for ClusterIPs: " + detector
	case e.toLocal == nil && n.svl != nil:
		return "dispatch", e.toHost, "nothing leads to " + n.svl.Name + ", the local endpoints"
	case e.markHost.Line > e.toHost.Line, e.pod != nil && e.pod.Line > e.markHost.Line,
		e.toLocal != nil && (e.toLocal.Line < e.toHost.Line || e.pod != nil && e.toLocal.Line < e.pod.Line):
		return "order", e.markHost, "the rules are out of order"
	}
	return "", nil, ""
}
