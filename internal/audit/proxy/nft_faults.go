package proxy

// nftFaults returns what the faults mean that the judges of nftables mode tell apart. All of them are findings of kind
// kubeproxy.chain.damaged, except a base chain that packets do not reach.
func nftFaults() map[string]string {
	return map[string]string{
		"chain.undeclared":      "a rule jumps to a missing chain: its connections fail",
		"chain.unexpected-rule": "kube-proxy's chains contain a rule from another program: it may affect connections to Services",
		"masquerade.mark":       "connections to Services from outside the Pod network get no answer: they are not marked for masquerading",
		"masquerade.mismatch": "connections to Services from outside the Pod network get no answer: rules use different mark " +
			"bits for masquerading",
		"masquerade.postrouting": "connections leave with the wrong source address: replies bypass this node, or client addresses are lost",
		"forward.invalid-order":  "INVALID packets are accepted before the rule that drops them, and reset their connections",
		"firewall.unpaired":      "loadBalancerSourceRanges admits every client or none: one of its two rules is missing",
		"nft.base-chain": "packets do not reach kube-proxy's rules, or reach them at the wrong hook or priority: " +
			"connections to Services fail",
		"nft.map": "table kube-proxy lacks a map or set: connections that need it fail",
		"nft.cluster-ips": "set cluster-ips does not match the ClusterIPs in use: connections to unused ports hang, or " +
			"other addresses are rejected",
		"nft.hairpin-set": "set hairpin-connections does not match the endpoints: a Pod that connects to itself through " +
			"its Service may get no answer",
		"service.hash":     "connections to a Service are handled by the rules of another Service",
		"service.address":  "a Service's rules use different addresses or ports: connections to one of them fail",
		"service.conflict": "one rule blocks connections to a Service and another sends them to its endpoints",
		"service.masquerade": "connections to a Service from outside the Pod network get no answer: it lacks the " +
			"masquerading that other Services have",
		"service.portal":      "connections to a Service's ClusterIP are not handled, although the rules for its endpoints exist",
		"service.portals":     "connections to Services are not handled: no rule matches any Service address",
		"nodeports.missing":   "node ports are not served on this node",
		"external.empty":      "connections from outside to a Service (node port, external or load balancer address) get no answer",
		"external.masquerade": "connections from outside to a Service get no answer, or lose the client address that policy Local preserves",
		"external.dispatch":   "connections from outside to a Service do not reach the endpoints that its policy selects",
		"external.pod":        "Pods of this node cannot reach a Service through its external addresses, or reach only endpoints on this node",
		"external.order":      "connections from outside to a Service are forwarded before they are marked: some get no answer",
		"dispatch.empty":      "every connection to a Service fails: no rule leads to an endpoint",
		"dispatch.duplicate":  "one endpoint of a Service gets twice its share of connections",
		"dispatch.condition":  "some connections to a Service are handled differently: a rule has a condition that kube-proxy does not write",
		"dispatch.order":      "some of a Service's rules come too late: its connections are forwarded before them",
		"dispatch.foreign":    "some connections to a Service go to an endpoint of another Service",
		"dispatch.count":      "some connections to a Service fail, or an endpoint gets none: the rule assumes another number of endpoints",
		"dispatch.keys":       "some connections to a Service fail: the rules pick a number that no endpoint has",
		"endpoint.empty":      "connections to one endpoint of a Service fail: its chain is empty",
		"endpoint.hairpin":    "a Pod that connects to itself through its Service gets no answer",
		"endpoint.dnat":       "connections to one endpoint of a Service fail or go to another address",
		"endpoint.order":      "connections to one endpoint are forwarded before they are marked for masquerading",
		"endpoint.hash":       "the rules for one endpoint of a Service have the wrong name: they may be stale or belong to another endpoint",
		"endpoint.protocol":   "connections to one endpoint of a Service are not forwarded: its rule matches another protocol",
	}
}
