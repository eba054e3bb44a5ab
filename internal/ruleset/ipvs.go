package ruleset

import "net/netip"

// IPVS describes the kernel state of kube-proxy's IPVS mode beside its iptables rules. It contains
// addresses, but no Service names.
type IPVS struct {
	Servers []VirtualServer
	Bound   map[netip.Addr]bool // addresses of kube-ipvs0
	Local   map[netip.Addr]bool // of all interfaces

	// Sources lists, for each load balancer address, the only ranges that may use it. Any client
	// may use an address that is not listed. Sources is nil if the kernel lacks ipsets of
	// kube-proxy.
	Sources map[Portal][]netip.Prefix
}

// Portal is an address, a port and a protocol: tcp, udp or sctp.
type Portal struct {
	Address  netip.AddrPort
	Protocol string
}

// VirtualServer is one address, port and protocol on which IPVS accepts connections.
type VirtualServer struct {
	Address   netip.AddrPort
	Protocol  string // tcp, udp or sctp
	Scheduler string
	Affinity  int // session affinity in seconds; 0 if disabled
	Servers   []RealServer
}

// RealServer is an endpoint of a virtual server. An endpoint of weight 0 gets no new connections:
// kube-proxy keeps it until its old ones end.
type RealServer struct {
	Address netip.AddrPort
	Weight  uint32
}
