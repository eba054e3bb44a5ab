package kubeproxy

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"nodegate/checks"
	"nodegate/checks/noderules"
	"nodegate/internal/host"
	"nodegate/internal/proxyrules"
	"nodegate/policy"
)

// proxyPostrouting: what kube-proxy marks must be masqueraded once, from random ports.
func proxyPostrouting() checks.Problem {
	return checks.Problem{
		Name: "kubeproxy.postrouting", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn, Moves: true,
		Detects: "kube-proxy's masquerading is of the old form, uses no random ports, or disagrees about the mark's bit.",
		Symptom: "Connections to Services stall for 1, 3 or 63 seconds, or answers never come back because traffic leaves with a Pod's or " +
			"client's address.",
		How: "nat KUBE-MARK-MASQ and KUBE-POSTROUTING (nftables mode: chain masquerading) of every backend and family: marked packets " +
			"only, the mark cleared before MASQUERADE, --random-fully, one bit in both.",
		Remedy:  "upgrade kube-proxy (1.16.13, 1.17.9, 1.18.6 or later) and the iptables that it runs (1.6.2 or later), then restart it",
		Ref:     "https://github.com/kubernetes/kubernetes/pull/92035",
		Inspect: inspectPostrouting,
	}
}

func inspectPostrouting(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("masqueraded once, from random ports")
	rep, err := noderules.Read(ctx, h, proxyrules.Options{})
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
		return s, errors.New("the rules of kube-proxy's IPVS mode are not judged: look at iptables-save -t nat | grep KUBE-POSTROUTING")
	case len(findings) > 0:
		rep.Fail(&s, findings)
		if rep.Mode == "nftables" { // no iptables has a part in it
			s.Remedy = "restart kube-proxy, which rewrites its table: kubectl -n kube-system delete pod -l k8s-app=kube-proxy --field-selector " +
				"spec.nodeName=NODE"
		}
	case isLost:
		return s, fmt.Errorf("cannot see KUBE-POSTROUTING: %s", lost.Message)
	default:
		s.Evidence = []checks.Evidence{checks.Seen(strings.TrimSpace(rep.Mode+" mode"), fmt.Sprintf("form of %s", rep.Version))}
	}
	return s, nil
}
