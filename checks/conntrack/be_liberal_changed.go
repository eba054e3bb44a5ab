package conntrack

import (
	"context"

	"nodegate/checks"
	"nodegate/checks/noderules"
	"nodegate/internal/audit"
	"nodegate/internal/host"
	"nodegate/policy"
)

// beLiberalChanged detects a change of be_liberal after kube-proxy started. kube-proxy reads it only once.
func beLiberalChanged() checks.Problem {
	return checks.Problem{
		Name: "conntrack.be-liberal-changed", Stages: []checks.Stage{checks.Run}, Severity: policy.Block, Moves: true,
		Detects:  "nf_conntrack_tcp_be_liberal is 0 now but was set when kube-proxy started, so kube-proxy left out its DROP of INVALID packets.",
		Symptom:  "Connections through Services that lasted for weeks break with \"connection reset by peer\" after `sysctl --system` was run.",
		How:      "be_liberal is 0, and filter KUBE-FORWARD, in the form that 1.29 or later writes, lacks the DROP of INVALID packets.",
		Remedy:   "set net.netfilter.nf_conntrack_tcp_be_liberal=1 again, or keep it at 0 and restart kube-proxy",
		TradeOff: "After a restart, kube-proxy writes the DROP, which breaks asymmetric routing (kubernetes#94861).",
		Ref:      "https://github.com/kubernetes/kubernetes/pull/120412",
		Inspect:  inspectBeLiberalChanged,
	}
}

func inspectBeLiberalChanged(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("be_liberal unchanged since kube-proxy started")
	liberal, evidence, err := readBeLiberal(h)
	if err != nil {
		return skipIfNotLoaded(s, err)
	}
	s.Evidence = []checks.Evidence{evidence}
	if liberal {
		return s, nil
	}
	rep, err := noderules.Read(ctx, h, audit.Options{BeLiberal: &liberal})
	if err != nil {
		return s, err
	}
	switch lost, isLost := rep.Lost("filter"); {
	case rep.Mode == "":
		s.Skip = noderules.None
		return s, nil
	case rep.Mode != "iptables":
		s.Skip = rep.Mode + " mode writes no rule that depends on be_liberal"
		return s, nil
	case isLost:
		s.Skip = lost.Message
		return s, nil
	}
	for _, f := range rep.About("kubeproxy.forward.invalid-drop") {
		s.Cause = beLiberalSysctl
		s.Evidence = append(s.Evidence, rep.Evidence(f))
		s.Differs("be_liberal=0 now, not 0 when kube-proxy started", "run `sysctl -w net.netfilter.nf_conntrack_tcp_be_liberal=1`, or keep 0 "+
			"and restart kube-proxy: `"+audit.RestartOn(h, audit.DeletePod)+"`")
	}
	return s, nil
}
