// Package conntrack holds the problems of connection tracking: a table that is
// full or slow, packets that it calls INVALID, and who overwrites its settings.
package conntrack

import "nodegate/checks"

// Problems lists the problems of connection tracking, in the order in which they run.
func Problems() []checks.Problem {
	return []checks.Problem{
		beLiberalChanged(),
		conntrackInvalid(),
		conntrackFull(),
		conntrackHeadroom(),
		conntrackHashsize(),
		conntrackOverwritten(),
		conntrackLosses(),
	}
}

const (
	refConntrack    = "https://www.kernel.org/doc/html/latest/networking/nf_conntrack-sysctl.html"
	remedyConntrack = "raise net.netfilter.nf_conntrack_max (and hashsize to a quarter of it), shorten " +
		"nf_conntrack_tcp_timeout_established, or find who opens the connections: conntrack -L"
	costConntrack = "An entry takes about 300 bytes of kernel memory, a million 300 MB."
)
