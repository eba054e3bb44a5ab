package image

import (
	"context"
	"slices"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/config"
	"nodegate/policy"
)

// fapolicyd: it lets only programs of packages run, and the programs of containers are in none.
func fapolicyd() checks.Problem {
	return checks.Problem{
		Name: "image.fapolicyd", Stages: []checks.Stage{checks.Image}, NotAll: true, Severity: policy.Warn,
		Detects: "fapolicyd starts at boot, and no rule allows the programs of containers and of the CNI.",
		Symptom: "Containers and CNI plugins do not start: \"operation not permitted\"; the node stays NotReady.",
		How: "fapolicyd.service is enabled, /etc/fapolicyd/fapolicyd.conf does not set permissive = 1, and no file in " +
			"/etc/fapolicyd/rules.d allows a directory of kubelet, the runtime, k3s or RKE2, or /opt/cni.",
		Remedy:   "write rules for these directories to /etc/fapolicyd/rules.d/80-kubernetes.rules",
		TradeOff: "Programs in these directories then run unchecked, as they must: images come from elsewhere.",
		Ref:      "https://github.com/rancher/rke2/pull/3416",
		Inspect:  inspectFapolicyd,
	}
}

func inspectFapolicyd(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("off, or allows containers")
	on, said, err := h.UnitOn(ctx, "fapolicyd.service")
	s.Evidence = append(s.Evidence, said)
	if err != nil || !on {
		return s, err
	}
	in := newFinder(h)
	for _, from := range []struct {
		trait   config.Trait
		pattern string
	}{
		{config.Permissive, "/etc/fapolicyd/fapolicyd.conf"}, {config.AllowsNodeDirs, "/etc/fapolicyd/rules.d/*.rules"},
		{config.AllowsNodeDirs, "/etc/fapolicyd/fapolicyd.rules"},
	} {
		has, err := anyHas(in, from.trait, from.pattern)
		if err != nil {
			return s, err
		}
		if has {
			s.Evidence = append(s.Evidence, checks.Seen(from.pattern, string(from.trait)))
			return s, nil
		}
	}
	s.Differs("fapolicyd is enabled, without a rule for containers", "run `for d in /var/lib/kubelet/ /var/lib/containerd/ "+
		"/var/lib/containers/ /var/lib/rancher/ /run/containerd/ /run/k3s/ /opt/cni/; do echo \"allow perm=any all : dir=$d\"; done >"+
		inRoot(in, "/etc/fapolicyd/rules.d/80-kubernetes.rules")+"`")
	return s, nil
}

// anyHas reports whether a file that matches a pattern has a trait.
func anyHas(h finder, trait config.Trait, patterns ...string) (bool, error) {
	for _, pattern := range patterns {
		names, err := h.glob(pattern)
		if err != nil {
			return false, err
		}
		for _, name := range names {
			traits, err := h.traits(name)
			if err != nil || slices.Contains(traits, trait) {
				return err == nil, err
			}
		}
	}
	return false, nil
}
