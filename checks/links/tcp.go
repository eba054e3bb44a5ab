package links

import (
	"context"
	"fmt"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// tcpChecksumErrors detects TCP packets with wrong checksums. Only the receiver notices a link that computes them wrongly.
func tcpChecksumErrors() checks.Problem {
	return checks.Problem{
		Name: "tcp.checksum-errors", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn,
		Detects: "TCP packets with a wrong checksum are arriving.",
		Symptom: "Some connections hang, often after the sender's tunnel link was recreated with its offload on; both nodes stay Ready.",
		How:     "InCsumErrors of Tcp in /proc/net/snmp rises between two reads 100 ms apart. If it is 0, there is no second read.",
		Remedy: "on the sending node, run `ethtool -K LINK tx-checksum-ip-generic off` for the tunnel's link; " +
			"a link block in the policy keeps it off",
		TradeOff: "The CPU computes the checksums.",
		Ref:      "https://github.com/flannel-io/flannel/issues/1279",
		Inspect: func(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
			s := checks.Passing("no wrong checksums now")
			first, err := readChecksumErrors(h, "Tcp")
			if err != nil || first == 0 {
				return s, err
			}
			if h, err = checks.Pause(ctx, h); err != nil {
				return s, err
			}
			second, err := readChecksumErrors(h, "Tcp")
			s.Evidence = []checks.Evidence{checks.Seen("/proc/net/snmp", fmt.Sprintf("Tcp InCsumErrors %d, then %d", first, second))}
			if second > first {
				s.Differs("InCsumErrors rising", "")
			}
			return s, err
		},
	}
}
