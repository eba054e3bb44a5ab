package proxy

// external maps the purposes of the rules for external traffic to their positions, from 1. Policy Cluster has mark and cluster. Policy
// Local has pod, markHost and toHost, and toLocal if there are local endpoints.
type external map[string]int

func (at external) local() bool {
	return at["pod"]+at["markHost"]+at["toHost"]+at["toLocal"] > 0
}

// judge returns the last part of a finding's name, the rule with the fault and the reason. The name is empty if the rules are correct.
// With detector, Pods have a rule of their own. local is the chain of local endpoints, or "".
func (at external) judge(detector bool, local string) (name, blamed, why string) {
	if !at.local() {
		switch {
		case at["mark"]+at["cluster"] == 0:
			return "empty", "", "the chain has no rules: external traffic is not handled"
		case at["cluster"] == 0:
			return "dispatch", "mark", "no rule leads to the Service's endpoints"
		case at["mark"] == 0:
			return "masquerade", "cluster", "external traffic is not masqueraded: replies from endpoints on other nodes bypass this node"
		case at["mark"] > at["cluster"]:
			return "order", "mark", "packets are dispatched before they are marked"
		}
		return "", "", ""
	}
	switch {
	case at["mark"] > 0:
		return "masquerade", "mark", "policy Local preserves the client address, but all traffic is masqueraded"
	case at["cluster"] > 0:
		return "dispatch", "cluster", "the policy is Local, but traffic goes to all endpoints"
	case at["markHost"] == 0:
		return "masquerade", "toHost", "traffic from the node itself is not masqueraded"
	case at["toHost"] == 0:
		return "dispatch", "markHost", "traffic from the node itself does not reach the endpoints"
	case at["pod"] == 0 && detector:
		return "pod", "markHost", "Pods of this node cannot reach endpoints on other nodes"
	case at["toLocal"] == 0 && local != "":
		return "dispatch", "toHost", "no rule leads to " + local + ", the chain of local endpoints"
	case at["markHost"] > at["toHost"], at["pod"] > at["markHost"],
		at["toLocal"] > 0 && (at["toLocal"] < at["toHost"] || at["toLocal"] < at["pod"]):
		return "order", "markHost", "the rules are out of order"
	}
	return "", "", ""
}
