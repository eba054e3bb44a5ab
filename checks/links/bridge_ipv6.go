package links

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// bridgeNetfilterIPv6 detects bridged IPv6 packets that a kernel without IPv6 drops because it cannot filter them.
func bridgeNetfilterIPv6() checks.Problem {
	return checks.Problem{
		Name: "bridge.netfilter-ipv6", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn, Weighs: true,
		Detects: "IPv6 is disabled in the kernel, but a bridge passes its IPv6 packets to ip6tables.",
		Symptom: "The kernel drops every IPv6 packet that crosses the bridge, even between two containers that do not use the host's IPv6. It " +
			"logs once: \"Module ipv6 is disabled, so call_ip6tables is not supported\".",
		How: "/proc/sys/net/ipv6 does not exist (ipv6.disable=1), and net.bridge.bridge-nf-call-ip6tables " +
			"or /sys/class/net/BRIDGE/bridge/nf_call_ip6tables is 1 for a bridge that has a veth port. The " +
			"sysctl disable_ipv6 does not cause this problem.",
		Remedy:   "set net.bridge.bridge-nf-call-ip6tables=0, also in the policy, or boot without ipv6.disable=1",
		TradeOff: "With the parameter at 0, IPv6 Services do not work through a bridge. On a kernel without IPv6 they cannot work anyway.",
		Ref:      "https://github.com/torvalds/linux/blob/master/net/bridge/br_netfilter_hooks.c",
		Inspect:  inspectBridgeNetfilterIPv6,
	}
}

func inspectBridgeNetfilterIPv6(ctx context.Context, h *host.Host, p *policy.Policy) (checks.State, error) {
	s := checks.Passing("bridged IPv6 not dropped")
	const parameter = "net/ipv6/conf/all/disable_ipv6"
	_, err := h.ReadSysctl(parameter)
	switch {
	case err == nil:
		s.Skip = "this kernel supports IPv6"
		return s, nil
	case !errors.Is(err, fs.ErrNotExist):
		return s, err
	}
	bridges, err := listPodBridges(ctx, h)
	if err != nil {
		return s, err
	}
	calls, err := readBridgeCalls(h, "ip6tables", bridges)
	if err != nil {
		return s, err
	}
	if len(bridges) == 0 || !calls.loaded {
		s.Skip = "no bridge with Pods on it is filtered"
		return s, nil
	}
	s.Evidence = append(calls.evidence, checks.Seen("/proc/sys/"+parameter, "no such parameter"))
	if calls.on != nil {
		s.Cause = "sysctl.net.bridge.bridge-nf-call-ip6tables"
		commands := []string{"sysctl -w net.bridge.bridge-nf-call-ip6tables=0"}
		for _, b := range calls.on {
			commands = append(commands, "echo 0 > /sys/class/net/"+b+"/bridge/nf_call_ip6tables")
		}
		remedy := "run `" + strings.Join(commands, "; ") + "`"
		if slices.ContainsFunc(p.Sysctls, func(s policy.Sysctl) bool { return s.Key.String() == "net.bridge.bridge-nf-call-ip6tables" }) {
			remedy = "boot without ipv6.disable=1; or write `override \"sysctl.net.bridge.bridge-nf-call-ip6tables\" { value = 0 }` in the " +
				"policy, whose value `nodegate apply` would set again, and " + remedy
		}
		s.Differs("dropped on "+strings.Join(calls.on, ", "), remedy)
	}
	return s, nil
}
