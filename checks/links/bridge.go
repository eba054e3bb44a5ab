package links

import (
	"context"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// bridgeNetfilter detects bridges that do not pass packets to iptables. Traffic that stays inside a bridge must pass conntrack too.
func bridgeNetfilter() checks.Problem {
	return checks.Problem{
		Name: "bridge.netfilter", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Block,
		Detects: "A bridge with Pods on it does not pass its packets to iptables.",
		Symptom: "A connection from a Pod to a ClusterIP times out, but only if the endpoint is on the same node: the reply stays inside the " +
			"bridge, keeps the endpoint's address, and the client answers with RST.",
		How: "For a bridge that has a veth port, net.bridge.bridge-nf-call-iptables and " +
			"/sys/class/net/BRIDGE/bridge/nf_call_iptables are both 0, or br_netfilter is not loaded.",
		Remedy:   "load br_netfilter at boot (modules-load.d) and set net.bridge.bridge-nf-call-iptables=1",
		TradeOff: "Every packet between two Pods on the same bridge passes through the packet filter.",
		Ref:      "https://kubernetes.io/docs/setup/production-environment/container-runtimes/",
		Inspect:  inspectBridgeNetfilter,
	}
}

func inspectBridgeNetfilter(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("every Pod bridge passes packets to iptables")
	bridges, err := listPodBridges(ctx, h)
	if err != nil {
		return s, err
	}
	if len(bridges) == 0 {
		s.Skip = "no bridge has Pods on it; routed Pods do not need br_netfilter"
		return s, nil
	}
	calls, err := readBridgeCalls(h, bridges)
	if err != nil {
		return s, err
	}
	s.Evidence = calls.evidence
	switch {
	case !calls.loaded:
		s.Cause = "module.br_netfilter"
		s.Differs("br_netfilter not loaded", h.LoadRemedy("run `modprobe br_netfilter` and add `module \"br_netfilter\" {}` to the policy",
			"br_netfilter"))
	case calls.off != nil:
		s.Cause = "sysctl.net.bridge.bridge-nf-call-iptables"
		s.Differs("off for "+strings.Join(calls.off, ", "),
			"run `sysctl -w net.bridge.bridge-nf-call-iptables=1` and add the sysctl to the policy")
	}
	return s, nil
}
