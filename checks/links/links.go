// Package links holds the problems of network interfaces and tunnels.
package links

import "nodegate/checks"

// Problems lists the problems of network interfaces in the order they run.
func Problems() []checks.Problem {
	return []checks.Problem{
		bridgeNetfilter(),
		mtuChain(),
		enaAllowance(),
		vxlanChecksum(),
		vmxnet3Offload(),
		udpChecksumErrors(),
		rpFilter(),
		macAddressPolicy(),
		neighbourTable(),
		acceptRA(),
		cniLeftovers(),
		tcpChecksumErrors(),
		overlayEntries(),
		defaultRoute(),
		cniIPv6(),
	}
}
