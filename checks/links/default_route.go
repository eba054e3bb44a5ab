package links

import (
	"context"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// defaultRoute: the kernel looks up a route to a ClusterIP before kube-proxy's rules rewrite it.
func defaultRoute() checks.Problem {
	return checks.Problem{
		Name: "links.default-route", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Warn,
		Detects: "The node has no default route.",
		Symptom: "Programs on the node reach no ClusterIP: \"Network is unreachable\". kubelet without --node-ip finds no address for its Node.",
		How: "No default route of IPv4 or IPv6 in the kernel's main table. Skipped if the node has kube-ipvs0, which carries every ClusterIP " +
			"(kube-proxy's mode ipvs). Warns only: a route to the Services' range is enough, with --node-ip.",
		Remedy: "add a default route, or one to the Services' range and --node-ip; a node that needs no other network can have `ip link add " +
			"dummy0 type dummy` with a default route of a high metric, as k3s' documents show",
		Ref:     "https://github.com/k3s-io/k3s/issues/6265",
		Inspect: inspectDefaultRoute,
	}
}

func inspectDefaultRoute(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("a default route")
	links, err := h.Links.List(ctx)
	if err != nil {
		return s, err
	}
	for _, l := range links {
		if l.Name == "kube-ipvs0" {
			s.Skip = "kube-ipvs0 carries the Services' addresses"
			return s, nil
		}
	}
	names, err := h.Links.DefaultRoutes(ctx)
	if err != nil {
		return s, err
	}
	if len(names) == 0 {
		s.Differs("none", "")
		return s, nil
	}
	s.Evidence = []checks.Evidence{checks.Seen("default route", strings.Join(names, ", "))}
	return s, nil
}
