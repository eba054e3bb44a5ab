package checks

import (
	"context"

	"nodegate/checks/kubeproxy"
	"nodegate/internal/host"
	"nodegate/policy"
)

// iptablesBackends: the kernel runs the rules of every backend one after the other.
func iptablesBackends() Problem {
	return Problem{
		Name: "iptables.backends", Stages: []Stage{Run}, Severity: policy.Warn,
		Detects:  "Two packet filter backends (iptables-legacy, iptables-nft, nftables) both hold Service chains of kube-proxy.",
		Symptom:  "Some connections to a Service go to Pods that are long gone: the rules of the backend that kube-proxy left shadow those it writes.",
		How:      "KUBE-SVC chains, or kube-proxy's nftables table, in more than one of iptables-nft-save, iptables-legacy-save and nft of one address family.",
		Remedy:   "use one backend for kube-proxy, kubelet and host (update-alternatives --config iptables), then reboot, or flush the other backend's KUBE chains",
		TradeOff: "A reboot drains the node; flushing by hand interrupts Services until kube-proxy's next sync.",
		Ref:      "https://github.com/kubernetes/kubernetes/issues/109811",
		Inspect:  inspectBackends,
	}
}

func inspectBackends(ctx context.Context, h *host.Host, _ *policy.Policy) (State, error) {
	s := State{Want: "one backend", Got: "one backend"}
	rep, err := proxyRules(ctx, h, kubeproxy.Options{})
	if err != nil {
		return s, err
	}
	findings := proxyFindings(rep, "kubeproxy.backend.mixed")
	switch {
	case rep.Mode == "":
		s.Skip = noProxyRules
	case len(findings) > 0:
		proxyWrong(&s, rep.Mode, findings)
	default:
		s.Pass = true
		for _, t := range rep.filters {
			s.Evidence = append(s.Evidence, Evidence{t.source, "holds kube-proxy's rules"})
		}
	}
	return s, nil
}
