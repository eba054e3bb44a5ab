package links

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// bridgeNetfilterIPv6: a kernel without IPv6 cannot filter it, and drops it.
func bridgeNetfilterIPv6() checks.Problem {
	return checks.Problem{
		Name: "bridge.netfilter-ipv6", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn,
		Detects: "IPv6 is disabled in the kernel and a bridge hands its IPv6 packets to ip6tables all the same.",
		Symptom: "The kernel drops every IPv6 packet that crosses the bridge, even between two containers that need no IPv6 of the host; it " +
			"says once: \"Module ipv6 is disabled, so call_ip6tables is not supported\".",
		How: "/proc/sys/net/ipv6 is not there (ipv6.disable=1), and net.bridge.bridge-nf-call-ip6tables or " +
			"/sys/class/net/BRIDGE/bridge/nf_call_ip6tables is 1 for a bridge that has a veth as port. The sysctl disable_ipv6 does not do this.",
		Remedy:   "set net.bridge.bridge-nf-call-ip6tables=0, or boot without ipv6.disable=1",
		TradeOff: "With the parameter at 0, IPv6 Services do not work on a bridge; on a kernel without IPv6 they cannot.",
		Ref:      "https://github.com/torvalds/linux/blob/master/net/bridge/br_netfilter_hooks.c",
		Inspect:  inspectBridgeNetfilterIPv6,
	}
}

func inspectBridgeNetfilterIPv6(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("bridged IPv6 not dropped")
	const sign = "net/ipv6/conf/all/disable_ipv6"
	_, err := h.ReadSysctl(sign)
	switch {
	case err == nil:
		s.Skip = "this kernel has IPv6"
		return s, nil
	case !errors.Is(err, fs.ErrNotExist):
		return s, err
	}
	bridges, err := linkBridges(ctx, h)
	if err != nil {
		return s, err
	}
	calls, err := readBridgeCalls(h, "ip6tables", bridges)
	if err != nil {
		return s, err
	}
	if len(bridges) == 0 || !calls.loaded {
		s.Skip = "no bridge that has Pods on it is filtered"
		return s, nil
	}
	s.Evidence = append(calls.evidence, checks.Seen("/proc/sys/"+sign, "no such parameter"))
	if calls.on != nil {
		s.Cause = "sysctl.net.bridge.bridge-nf-call-ip6tables"
		commands := []string{"sysctl -w net.bridge.bridge-nf-call-ip6tables=0"}
		for _, b := range calls.on {
			commands = append(commands, "echo 0 > /sys/class/net/"+b+"/bridge/nf_call_ip6tables")
		}
		s.Differs("dropped on "+strings.Join(calls.on, ", "), "run: "+strings.Join(commands, "; "))
	}
	return s, nil
}
