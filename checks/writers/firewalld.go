package writers

import (
	"context"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// firewalld: two programs own one packet filter.
func firewalld() checks.Problem {
	return checks.Problem{
		Name: "firewalld", Stages: []checks.Stage{checks.Image, checks.Boot, checks.Run}, Severity: policy.Warn,
		Detects: "firewalld runs alongside kube-proxy and the CNI.",
		Symptom: "Pods cannot reach Services or other nodes; after `firewall-cmd --reload` rules are missing, or rejecting rules come first.",
		How:     "firewalld.service is active or enabled.",
		Remedy:  "run `systemctl disable --now firewalld.service`",
		TradeOff: "The node's own ports are reachable from its network: filter them in the cloud's security groups or " +
			"with a host policy of the CNI.",
		Ref: "https://docs.tigera.io/calico/latest/getting-started/kubernetes/requirements",
		Inspect: func(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
			return inspectUnits(ctx, h, "firewalld.service")
		},
	}
}

// inspectUnits passes if none of the units is active or enabled.
func inspectUnits(ctx context.Context, h *host.Host, units ...string) (checks.State, error) {
	s := checks.Passing("off")
	for _, unit := range units {
		on, said, err := h.UnitOn(ctx, unit)
		if err != nil {
			return s, err
		}
		s.Evidence = append(s.Evidence, said)
		if on {
			s.Got, s.Pass = unit+" is "+said.Text, false
		}
	}
	return s, nil
}
