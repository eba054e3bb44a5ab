package checks

import (
	"context"
	"fmt"

	"nodegate/internal/host"
	"nodegate/policy"
)

// udpChecksumErrors: on the receiving node a broken outer checksum is all there is to see.
func udpChecksumErrors() Problem {
	return Problem{
		Name: "udp.checksum-errors", Stages: []Stage{Run}, Severity: policy.Warn,
		Detects:  "UDP packets with a wrong checksum arrive now.",
		Symptom:  "Traffic between nodes stalls for 1, 3 or 63 seconds; dmesg says \"UDP: bad checksum. From ... to ...:8472\" where the sender uses VXLAN.",
		How:      "InCsumErrors of Udp in /proc/net/snmp rises between two reads 100 ms apart; where it is 0 there is no second read. A number that stands still is only evidence of the past, and a snapshot holds one read.",
		Remedy:   "look at the sender, which dmesg names: nodegate check there judges vxlan.checksum; on VMware vmxnet3 use another VXLAN port or turn the NIC's tunnel offloads off",
		TradeOff: "Without tunnel offloads the CPU computes checksums and segments.",
		Ref:      "https://github.com/kubernetes/kubernetes/pull/92035",
		Inspect:  inspectUDPChecksumErrors,
	}
}

func inspectUDPChecksumErrors(ctx context.Context, h *host.Host, _ *policy.Policy) (State, error) {
	s := State{Want: "no wrong checksum now", Got: "no wrong checksum now", Pass: true}
	first, err := udpChecksums(h)
	if err != nil {
		return s, err
	}
	second := first
	if first > 0 {
		if err := countersPause(ctx); err != nil {
			return s, err
		}
		if second, err = udpChecksums(h); err != nil {
			return s, err
		}
	}
	s.Evidence = []Evidence{{"/proc/net/snmp", fmt.Sprintf("Udp InCsumErrors %d", second)}}
	if second > first {
		s.Evidence[0].Text += fmt.Sprintf(", %d more in 100 ms", second-first)
		s.Pass, s.Got, s.Cause = false, "InCsumErrors rising", "vxlan.checksum"
		s.Remedy = "run: dmesg | grep 'UDP: bad checksum', which names the sender; then nodegate check --stage run there (vxlan.checksum)"
	}
	return s, nil
}

func udpChecksums(h *host.Host) (int64, error) {
	text, err := h.Text("/proc/net/snmp")
	if err != nil {
		return 0, err
	}
	counters, err := parseSNMP(text, "Udp")
	if err != nil {
		return 0, err
	}
	n, ok := counters["InCsumErrors"]
	if !ok {
		return 0, fmt.Errorf("/proc/net/snmp: this kernel has no InCsumErrors")
	}
	return n, nil
}
