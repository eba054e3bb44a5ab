package kubeproxy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/checks/noderules"
	"nodegate/internal/audit"
	"nodegate/internal/host"
	"nodegate/internal/verdict"
	"nodegate/policy"
)

// proxyPostrouting detects wrong masquerading. Packets that kube-proxy marks must be masqueraded once, from random ports.
func proxyPostrouting() checks.Problem {
	return checks.Problem{
		Name: "kubeproxy.postrouting", Stages: []checks.Stage{checks.Run}, Severity: policy.Block, Moves: true,
		Detects: "kube-proxy's masquerading has the old form, uses no random ports, or its rules disagree about the mark bit.",
		Symptom: "Connections to Services stall for 1, 3 or 63 seconds, or answers never arrive because traffic " +
			"leaves with the address of a Pod or client.",
		How: "The check reads nat KUBE-MARK-MASQ and KUBE-POSTROUTING (nftables mode: chain masquerading) " +
			"of every backend and family. Only marked packets may be masqueraded, the mark must be cleared " +
			"before MASQUERADE, --random-fully must be set, and both chains must use the same bit.",
		Remedy:  "upgrade kube-proxy (1.16.13, 1.17.9, 1.18.6 or later) and the iptables that it runs (1.6.2 or later), then restart kube-proxy",
		Ref:     "https://github.com/kubernetes/kubernetes/pull/92035",
		Inspect: inspectPostrouting,
	}
}

func inspectPostrouting(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("masqueraded once, from random ports")
	rep, err := noderules.Read(ctx, h, audit.Options{})
	if err != nil {
		return s, err
	}
	findings := rep.About("kubeproxy.masquerade.", "POSTROUTING", "KUBE-POSTROUTING",
		"KUBE-MARK-MASQ", "masquerading", "mark-for-masquerade")
	lost, isLost := rep.Lost("nat")
	switch {
	case rep.Mode == "":
		s.Skip = noderules.None
	case rep.Mode == "ipvs":
		return s, errors.New("cannot judge the rules of kube-proxy's IPVS mode; run `iptables-save -t nat | grep KUBE-POSTROUTING`")
	case len(findings) > 0:
		rep.Fail(&s, findings)
		s.Minor = !slices.ContainsFunc(findings, func(f audit.Finding) bool { return f.Verdict == verdict.Fail })
		if rep.Mode == "nftables" { // iptables is not involved
			s.Remedy = "restart kube-proxy, which rewrites its table: `" + audit.DeletePod + "`"
		}
		s.Remedy = audit.RestartOn(h, s.Remedy)
	case isLost:
		return s, fmt.Errorf("cannot read KUBE-POSTROUTING: %s", lost.Message)
	default:
		s.Evidence = []checks.Evidence{checks.Seen(strings.TrimSpace(rep.Mode+" mode"), fmt.Sprintf("rules in the form of %s", rep.Version))}
	}
	return s, nil
}
