package proxy

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"nodegate/internal/audit/compare"
	"nodegate/internal/audit/model"
)

// damaged is the kind of a rule that kube-proxy does not write, or lacks.
const damaged = "kubeproxy.chain.damaged"

// explain returns what a finding means for connections if it is about a rule of a chain, or about an element of a set. It returns "" if
// the kind of the finding has a meaning of its own.
func explain(name, chain string) string {
	kind, _ := model.ServiceChain(chain)
	if kind == "" {
		kind, _ = model.NFTServiceChain(chain)
	}
	kind = " " + cmp.Or(kind, chain) + " "
	for _, row := range [][2]string{
		{" SVC service ", "some connections to a Service fail, are not masqueraded, or reach its endpoints in unequal shares"},
		{" SVL local ", "some connections to a Service's endpoints on this node fail, or reach them in unequal shares"},
		{" SEP endpoint ", "connections to one endpoint of a Service fail, go to another address, or get no answer"},
		{" EXT external ", "connections from outside to a Service (node port, external or load balancer address) fail or get no answer"},
		{" FW ", "loadBalancerSourceRanges admits other clients than the Service requests"},
		{" KUBE-SERVICES services service-ips no-endpoint-services ", "connections to a Service's address fail, or reach another Service"},
		{" KUBE-NODEPORTS service-nodeports ", "connections to a node port fail, or reach another Service"},
		{" KUBE-EXTERNAL-SERVICES ", "connections from outside to a Service without endpoints are not rejected as they should be"},
		{" KUBE-PROXY-FIREWALL firewall firewall-check firewall-ips ",
			"loadBalancerSourceRanges admits every client or none: one of its two rules is missing"},
		{" KUBE-MARK-MASQ mark-for-masquerade ",
			"connections to Services from outside the Pod network get no answer: they are not marked for masquerading"},
		{" KUBE-POSTROUTING masquerading ",
			"connections leave with the wrong source address: replies bypass this node, or client addresses are lost"},
		{" KUBE-FORWARD ", "forwarded connections to Services are dropped, or packets of the state INVALID reset them"},
		{" cluster-ips cluster-ips-check ", "connections to unused ports of ClusterIPs hang, or other addresses are rejected"},
		{" hairpin-connections ", "a Pod that connects to itself through its Service may get no answer"},
	} {
		if name == damaged && strings.Contains(row[0], kind) {
			return row[1]
		}
	}
	return ""
}

// newFinding returns the finding about a difference.
func newFinding(name, family, table string, d *compare.Difference) Finding {
	f := Finding{Name: name, Family: family, Table: table, Chain: d.Name, Line: d.Line, Handle: d.Handle,
		Service: d.Service, Means: explain(name, d.Name)}
	switch {
	case d.Empty:
		f.Message = d.Name + " is empty"
	case d.Order:
		f.Message = fmt.Sprintf("the rules are out of order: %q comes too late", d.Missing)
	case d.Missing != "" && d.Extra != "":
		f.Message = fmt.Sprintf("kube-proxy writes %q here", d.Missing)
	case d.Missing != "":
		f.Message = fmt.Sprintf("%s lacks %q", d.Name, d.Missing)
	case d.Extra != "":
		f.Message = "kube-proxy does not write this into " + d.Name
	default:
		f.Message = d.Name + " is missing from the table"
	}
	if d.Share > 0 {
		f.Message += fmt.Sprintf("; this concerns %.1f %% of its connections", 100*d.Share)
	}
	return f
}

// report adds a finding for a difference: one for each Service, and one for each chain that Services share.
func (a *audit) report(d *compare.Difference) {
	of := d.Service
	if !d.Own && d.Rule != nil { // a damaged rule that no longer leads to its Service
		of, _, _ = strings.Cut(d.Rule.Comment, " ")
	}
	if a.emptied[d.Chain.Index] || (d.Own || d.Rule != nil) && a.broken[of] {
		return
	}
	name, table := damaged, "nat"
	if a.filter.Chain(d.Name) == d.Chain {
		table = "filter"
	}
	switch {
	case table == "filter" && (d.Name == "KUBE-SERVICES" || d.Name == "KUBE-EXTERNAL-SERVICES") && d.Own:
		name = "kubeproxy.service.reject"
	case isAffinity(d):
		name = "kubeproxy.affinity.set"
	}
	a.broken[d.Service] = a.broken[d.Service] || d.Own
	if d.Empty && a.lost[d.Chain.Index] > 1 && a.model.Chains[d.Chain.Index].Kind == "" { // one cause for all Services
		a.emptied[d.Chain.Index], d.Service = true, ""
	}
	f := newFinding(name, a.save.Family, table, d)
	if d.Rule != nil {
		f.Rule = d.Rule.Text
	}
	if drop, accept := InvalidDrop(a.filter); d.Order && d.Name == "KUBE-FORWARD" && drop != nil && accept != nil {
		f.Line, f.Rule = int(drop.Line), drop.Text
		f.Message = fmt.Sprintf("the ACCEPT in line %d comes first and accepts INVALID packets", accept.Line)
	}
	a.out.Add(f)
}

// isAffinity reports whether a difference is about session affinity alone.
func isAffinity(d *compare.Difference) bool {
	recent := regexp.MustCompile(` -m recent( --(rcheck|set|reap|(seconds|name) \S+))*`)
	missing, extra := recent.ReplaceAllString(d.Missing, ""), recent.ReplaceAllString(d.Extra, "")
	dnat := strings.Contains(missing, "-j DNAT")
	switch {
	case d.Empty || missing == d.Missing && extra == d.Extra:
		return false
	case d.Missing == "" || d.Missing != missing && !dnat:
		return true
	}
	return missing == extra
}
