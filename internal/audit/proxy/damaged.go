package proxy

import (
	"cmp"
	"fmt"
	"strings"

	"nodegate/internal/audit/compare"
	"nodegate/internal/audit/model"
	"nodegate/internal/ruleset"
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
	kind = cmp.Or(kind, chain)
	if like := map[string]string{"service": "SVC", "local": "SVL", "endpoint": "SEP", "external": "EXT", "firewall": "KUBE-PROXY-FIREWALL",
		"services": "KUBE-SERVICES", "service-ips": "KUBE-SERVICES", "service-nodeports": "KUBE-NODEPORTS",
		"no-endpoint-services": "KUBE-SERVICES", "firewall-check": "KUBE-PROXY-FIREWALL", "firewall-ips": "KUBE-PROXY-FIREWALL",
		"mark-for-masquerade": "KUBE-MARK-MASQ", "masquerading": "KUBE-POSTROUTING"}[kind]; like != "" {
		kind = like
	}
	if name != damaged {
		return ""
	}
	return map[string]string{
		"SVC":                    "some connections to a Service fail, are not masqueraded, or reach its endpoints in unequal shares",
		"SVL":                    "some connections to a Service's endpoints on this node fail, or reach them in unequal shares",
		"SEP":                    "connections to one endpoint of a Service fail, go to another address, or get no answer",
		"EXT":                    "connections from outside to a Service (node port, external or load balancer address) fail or get no answer",
		"FW":                     "loadBalancerSourceRanges admits other clients than the Service requests",
		"KUBE-SERVICES":          "connections to a Service's address fail, or reach another Service",
		"KUBE-NODEPORTS":         "connections to a node port fail, or reach another Service",
		"KUBE-EXTERNAL-SERVICES": "connections from outside to a Service without endpoints are not rejected as they should be",
		"KUBE-PROXY-FIREWALL":    "loadBalancerSourceRanges admits every client or none: one of its two rules is missing",
		"KUBE-MARK-MASQ":         "connections to Services from outside the Pod network get no answer: they are not marked for masquerading",
		"KUBE-POSTROUTING":       "connections leave with the wrong source address: replies bypass this node, or client addresses are lost",
		"KUBE-FORWARD":           "forwarded connections to Services are dropped, or packets of the state INVALID reset them",
		"cluster-ips":            "connections to unused ports of ClusterIPs hang, or other addresses are rejected",
		"cluster-ips-check":      "connections to unused ports of ClusterIPs hang, or other addresses are rejected",
		"hairpin-connections":    "a Pod that connects to itself through its Service may get no answer",
	}[kind]
}

// report adds a finding for a difference: one for each Service, and one for each chain that Services share.
func (a *audit) report(d compare.Difference) {
	service := serviceName(d.Port)
	if a.emptied[d.Chain.Index] || d.Port != nil && a.broken[d.Port.Name] {
		return
	}
	if d.Port == nil && d.Extra != nil { // a damaged rule that no longer leads to its Service
		if of, _, _ := strings.Cut(d.Extra.Comment, " "); a.broken[of] {
			return
		}
	}
	table := "nat"
	if a.filter.Chain(d.Chain.Name) == d.Chain {
		table = "filter"
	}
	name, cost := damaged, a.cost(d)
	switch {
	case table == "filter" && (d.Chain.Name == "KUBE-SERVICES" || d.Chain.Name == "KUBE-EXTERNAL-SERVICES") && d.Port != nil:
		name = "kubeproxy.service.reject"
	case isAffinity(d):
		name = "kubeproxy.affinity.set"
	}
	words := ""
	switch c := d.Chain.Name; {
	case len(d.Chain.Rules) == 0 && a.model.Chains[d.Chain.Index].Kind == "" && a.lost[d.Chain.Index] > 1: // one cause for all Services
		a.emptied[d.Chain.Index] = true
		service, words = "", c+" is empty"
	case d.Order && c == "KUBE-FORWARD":
		drop, accept := InvalidDrop(a.filter)
		if d.Extra, words = drop, "the rules are out of order"; accept != nil && drop != nil {
			words = fmt.Sprintf("the ACCEPT in line %d comes first and accepts INVALID packets", accept.Line)
		}
	default:
		missing, extra := "", ""
		if d.Missing != nil {
			missing = d.Missing.Text(c)
		}
		if d.Extra != nil {
			extra = d.Extra.Text
		}
		words = describe(c, missing, extra, len(d.Chain.Rules) == 0, d.Order)
	}
	if d.Port != nil {
		a.broken[d.Port.Name] = true
	}
	f := a.add(name, table, d.Chain, d.Extra, "%s%s", words, cost)
	f.Service = service
	if means := explain(name, d.Chain.Name); means != "" {
		f.Means = means
	}
}

// describe returns the difference of a chain, a set or a map from kube-proxy's.
func describe(name, missing, extra string, empty, late bool) string {
	switch {
	case empty:
		return name + " is empty"
	case late:
		return fmt.Sprintf("the rules are out of order: %q comes too late", missing)
	case missing != "" && extra != "":
		return fmt.Sprintf("kube-proxy writes %q here", missing)
	case missing != "":
		return fmt.Sprintf("%s lacks %q", name, missing)
	case extra != "":
		return "kube-proxy does not write this into " + name
	}
	return name + " is missing from the table"
}

// isAffinity reports whether a difference is about session affinity alone.
func isAffinity(d compare.Difference) bool {
	const recent = ruleset.ByRecent | ruleset.RecentSet
	if d.Missing != nil && d.Extra != nil && d.Missing.Target == "DNAT" && d.Extra.Target == "DNAT" && d.Missing.To != d.Extra.To {
		return false
	}
	return d.Missing != nil && d.Missing.Flags&recent != 0 && len(d.Chain.Rules) > 0 && (d.Missing.Target != "DNAT" || d.Extra != nil) ||
		d.Extra != nil && d.Extra.Flags&recent != 0 && d.Missing == nil
}

// cost returns the share of a Service's connections that a difference in one of its chains to endpoints concerns.
func (a *audit) cost(d compare.Difference) string {
	if d.Port == nil {
		return ""
	}
	share := 0.0
	switch a.model.Chains[d.Chain.Index].Kind {
	case "SEP":
		for _, e := range a.endpoints(d.Port.SVC) {
			if e.Chain == d.Chain.Name {
				share += e.Chance
			}
		}
	case "SVC", "SVL":
		share = 1
		list := a.endpoints(d.Chain)
		for _, e := range list {
			share -= min(e.Chance, 1/float64(len(list)))
		}
	}
	if share < 0.0005 {
		return ""
	}
	return fmt.Sprintf("; this concerns %.1f %% of its connections", 100*share)
}
