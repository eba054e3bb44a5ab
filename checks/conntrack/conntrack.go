// Package conntrack holds the problems of connection tracking: a full or slow table, packets that it classifies as
// INVALID, and programs that overwrite its settings.
package conntrack

import "nodegate/checks"

// Problems lists the problems of connection tracking in the order they run.
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
		"nf_conntrack_tcp_timeout_established, or run `conntrack -L` to see which connections fill the table"
	costConntrack = "An entry takes about 300 bytes of kernel memory; a million entries take 300 MB."
)
