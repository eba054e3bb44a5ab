package links

import (
	"context"
	"fmt"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// tcpChecksumErrors: a link that computes wrong checksums shows where the packets arrive.
func tcpChecksumErrors() checks.Problem {
	return checks.Problem{
		Name: "tcp.checksum-errors", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn,
		Detects: "TCP packets with a wrong checksum arrive now.",
		Symptom: "A part of the connections hangs, often after the sender's tunnel link was made again with its offload on; both nodes stay " +
			"Ready.",
		How: "InCsumErrors of Tcp in /proc/net/snmp rises between two reads 100 ms apart; where it is 0 there is no second read.",
		Remedy: "on the node that sends: ethtool -K LINK tx-checksum-ip-generic off, of the tunnel's link; a link block of the policy keeps " +
			"it so",
		TradeOff: "The processor computes the checksums.",
		Ref:      "https://github.com/flannel-io/flannel/issues/1279",
		Inspect: func(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
			s := checks.Passing("no wrong checksum now")
			first, err := checksumErrors(h, "Tcp")
			if err != nil || first == 0 {
				return s, err
			}
			if err := checks.Pause(ctx); err != nil {
				return s, err
			}
			second, err := checksumErrors(h, "Tcp")
			s.Evidence = []checks.Evidence{checks.Seen("/proc/net/snmp", fmt.Sprintf("Tcp InCsumErrors %d, then %d", first, second))}
			if second > first {
				s.Differs("InCsumErrors rising", "")
			}
			return s, err
		},
	}
}
