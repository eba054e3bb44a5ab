package packetfilter

import (
	"context"

	"nodegate/checks"
	"nodegate/checks/noderules"
	"nodegate/internal/host"
	"nodegate/internal/proxyrules"
	"nodegate/policy"
)

// iptablesBackends: the kernel runs the rules of every backend one after the other.
func iptablesBackends() checks.Problem {
	return checks.Problem{
		Name: "iptables.backends", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn, Moves: true,
		Detects: "Two packet filter backends (iptables-legacy, iptables-nft, nftables) both hold Service chains of kube-proxy.",
		Symptom: "Some connections to a Service go to Pods that are long gone: the rules of the backend that kube-proxy left shadow those " +
			"it writes.",
		How: "KUBE-SVC chains, or kube-proxy's nftables table, in more than one of iptables-nft-save, iptables-legacy-save and nft of " +
			"one address family.",
		Remedy: "use one backend for kube-proxy, kubelet and host (update-alternatives --config iptables), then reboot, or flush the other " +
			"backend's KUBE chains",
		TradeOff: "A reboot drains the node; flushing by hand interrupts Services until kube-proxy's next sync.",
		Ref:      "https://github.com/kubernetes/kubernetes/issues/109811",
		Inspect:  inspectBackends,
	}
}

func inspectBackends(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("one backend")
	rep, err := noderules.Read(ctx, h, proxyrules.Options{})
	if err != nil {
		return s, err
	}
	findings := rep.About("kubeproxy.backend.mixed")
	switch {
	case rep.Mode == "":
		s.Skip = noderules.None
	case len(findings) > 0:
		rep.Fail(&s, findings)
	default:
		for _, t := range rep.Filters {
			s.Evidence = append(s.Evidence, checks.Seen(t.Source, "holds kube-proxy's rules"))
		}
	}
	return s, nil
}
