package ruleset

import "net/netip"

// IPVS is what the kernel has of kube-proxy's IPVS mode beside its iptables rules. It has addresses, and no names of Services.
type IPVS struct {
	Servers []VirtualServer
	Bound   map[netip.Addr]bool // addresses of kube-ipvs0
	Local   map[netip.Addr]bool // of all interfaces

	// Sources are the ranges that alone may use a load balancer's address, by that. Anybody may use one that it does not have. It is
	// nil where the kernel has no sets of kube-proxy's.
	Sources map[Portal][]netip.Prefix
}

// Portal is an address, a port and a protocol: tcp, udp or sctp.
type Portal struct {
	Address  netip.AddrPort
	Protocol string
}

// VirtualServer is one address, port and protocol that IPVS takes connections to.
type VirtualServer struct {
	Address   netip.AddrPort
	Protocol  string // tcp, udp or sctp
	Scheduler string
	Affinity  int // seconds for which a client stays with one endpoint, 0: none
	Servers   []RealServer
}

// RealServer is where connections go. One of weight 0 gets no new ones: kube-proxy keeps it for as long as old ones last.
type RealServer struct {
	Address netip.AddrPort
	Weight  uint32
}
