package kubeproxy

import "nodegate/checks"

// Problems lists the problems of kube-proxy's rules and settings that a policy can ask for, in the order they run.
// Audit judges the rules in full.
func Problems() []checks.Problem {
	return []checks.Problem{
		proxyPostrouting(),
		nodePortOverlap(),
		ipvsSettings(),
		nftUserData(),
		packetsReach(),
	}
}
