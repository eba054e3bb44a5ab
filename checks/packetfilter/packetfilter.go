// Package packetfilter holds the problems of iptables and nftables themselves:
// versions, backends, and rules that other programs left behind or lost.
package packetfilter

import "nodegate/checks"

// Problems lists the problems of the packet filter in the order they run.
func Problems() []checks.Problem {
	return []checks.Problem{
		iptablesBackends(),
		bareDrop(),
		kernelCan(),
		kernelCNI(),
		forwardDrop(),
		inputDrop(),
		incompatible(),
	}
}
