package packetfilter

import (
	"context"

	"nodegate/checks"
	"nodegate/checks/noderules"
	"nodegate/internal/host"
	"nodegate/internal/proxyrules"
	"nodegate/policy"
)

// iptablesBackends detects Service chains in two backends: the kernel runs the rules of every backend, one after the other.
func iptablesBackends() checks.Problem {
	return checks.Problem{
		Name: "iptables.backends", Stages: []checks.Stage{checks.Run}, Severity: policy.Block, Moves: true,
		Detects: "Two packet filter backends (iptables-legacy, iptables-nft, nftables) both contain " +
			"kube-proxy's Service chains.",
		Symptom: "Some connections to a Service go to Pods that no longer exist: stale rules in the backend " +
			"that kube-proxy no longer uses shadow its current rules.",
		How: "KUBE-SVC chains or kube-proxy's nftables table exist in more than one of iptables-nft-save, " +
			"iptables-legacy-save and nft, for the same address family.",
		Remedy: "use one backend for kube-proxy, kubelet and the host (`update-alternatives --config " +
			"iptables`), then reboot or flush the KUBE chains of the other backend",
		TradeOff: "Before a reboot the node must be drained; flushing the chains interrupts Services until " +
			"kube-proxy's next sync.",
		Ref:     "https://github.com/kubernetes/kubernetes/issues/109811",
		Inspect: inspectBackends,
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
			s.Evidence = append(s.Evidence, checks.Seen(t.Source, "contains kube-proxy's rules"))
		}
	}
	return s, nil
}
