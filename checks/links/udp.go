package links

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// udpChecksumErrors detects UDP packets with wrong checksums: the only evidence on the receiving node that a sender
// computes wrong outer checksums.
func udpChecksumErrors() checks.Problem {
	return checks.Problem{
		Name: "udp.checksum-errors", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn,
		Detects: "UDP packets with a wrong checksum are arriving.",
		Symptom: "Traffic between nodes stalls for 1, 3 or 63 seconds. If the sender uses VXLAN, dmesg shows " +
			"\"UDP: bad checksum. From ... to ...:8472\".",
		How: "InCsumErrors of Udp in /proc/net/snmp rises between two reads 100 ms apart. If it is 0, there is no second read. A counter that " +
			"does not rise only shows a past problem, and a snapshot holds one read.",
		Remedy: "inspect the sender, which dmesg names: `nodegate check --stage run` there judges " +
			"vxlan.checksum; on VMware vmxnet3, use another VXLAN port or turn off the NIC's tunnel offloads",
		TradeOff: "Without tunnel offloads, the CPU computes checksums and segments packets.",
		Ref:      "https://github.com/kubernetes/kubernetes/pull/92035",
		Inspect: inspectChecksumErrors("Udp", "vxlan.checksum",
			"run `dmesg | grep 'UDP: bad checksum'` to find the sender, then `nodegate check --stage run` there (vxlan.checksum)"),
	}
}

// inspectChecksumErrors returns the inspection of one protocol's counter, with the cause and the remedy of a counter that rises.
func inspectChecksumErrors(protocol, cause, remedy string) func(context.Context, *host.Host, *policy.Policy) (checks.State, error) {
	return func(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
		s := checks.Passing("no wrong checksums now")
		first, err := readChecksumErrors(h, protocol)
		if err != nil {
			return s, err
		}
		second := first
		if first > 0 {
			if h, err = checks.Pause(ctx, h); err != nil {
				return s, err
			}
			if second, err = readChecksumErrors(h, protocol); err != nil {
				return s, err
			}
		}
		s.Evidence = []checks.Evidence{checks.Seen("/proc/net/snmp", fmt.Sprintf("%s InCsumErrors %d", protocol, second))}
		if second > first {
			s.Evidence[0].Text += fmt.Sprintf(", %d more in 100 ms", second-first)
			s.Cause = cause
			s.Differs("InCsumErrors rising", remedy)
		}
		return s, nil
	}
}

func readChecksumErrors(h *host.Host, protocol string) (int64, error) {
	text, err := h.Text("/proc/net/snmp")
	if err != nil {
		return 0, err
	}
	return parseChecksumErrors(text, protocol)
}

// parseChecksumErrors reads the counter InCsumErrors of one protocol from /proc/net/snmp: a line of names and a line of numbers, both
// starting with the protocol.
func parseChecksumErrors(text, protocol string) (int64, error) {
	var names []string
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, protocol+":")
		fields := strings.Fields(rest)
		switch at := slices.Index(names, "InCsumErrors"); {
		case !ok:
		case names == nil:
			names = fields
		case at < 0:
			return 0, fmt.Errorf("/proc/net/snmp: no counter InCsumErrors in this kernel")
		case at >= len(fields):
			return 0, fmt.Errorf("/proc/net/snmp: %s has %d numbers for %d names", protocol, len(fields), len(names))
		default:
			return strconv.ParseInt(fields[at], 10, 64)
		}
	}
	return 0, fmt.Errorf("/proc/net/snmp: no counters of %s", protocol)
}
