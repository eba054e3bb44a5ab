package packetfilter

import (
	"context"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/checks/noderules"
	"nodegate/internal/audit"
	"nodegate/internal/host"
	"nodegate/internal/ruleset"
	"nodegate/policy"
)

// chainsOfBoth returns the CNI's chains that have rules in both backends of iptables. An update of the CNI's image to another
// iptables leaves the old ones behind (amazon-vpc-cni-k8s#3800).
func chainsOfBoth(sets []*ruleset.Set) []string {
	type chain struct{ family, table, name string }
	backends := map[chain]string{}
	var twice []string
	for _, set := range sets {
		for _, save := range set.Saves {
			for _, t := range save.Tables {
				for _, c := range t.Chains {
					at := chain{save.Family, t.Name, c.Name}
					cni := slices.ContainsFunc([]string{"AWS-", "FLANNEL-", "CNI-HOSTPORT-", "CILIUM_", "cali-"}, func(p string) bool {
						return strings.HasPrefix(c.Name, p)
					})
					switch before := backends[at]; {
					case !cni || len(c.Rules) == 0 || c.Refs == 0:
					case before != "" && before != save.Backend && !slices.Contains(twice, c.Name):
						twice = append(twice, c.Name)
					default:
						backends[at] = save.Backend
					}
				}
			}
		}
	}
	return twice
}

// iptablesBackends detects Service chains in two backends: the kernel runs the rules of every backend, one after the other.
func iptablesBackends() checks.Problem {
	return checks.Problem{
		Name: "iptables.backends", Stages: []checks.Stage{checks.Run}, Severity: policy.Block, Moves: true,
		Detects: "Two packet filter backends (iptables-legacy, iptables-nft, nftables) both contain " +
			"kube-proxy's Service chains, or the chains of a CNI.",
		Symptom: "Some connections to a Service go to Pods that no longer exist: stale rules in the backend " +
			"that kube-proxy no longer uses shadow its current rules.",
		How: "KUBE-SVC chains or kube-proxy's nftables table exist in more than one of iptables-nft-save, " +
			"iptables-legacy-save and nft, for the same address family.",
		Remedy: "use one backend for kube-proxy, kubelet and the host (`update-alternatives --config " +
			"iptables`), then reboot or flush the KUBE chains of the other backend",
		TradeOff: "Before a reboot the node must be drained; flushing the chains interrupts Services until kube-proxy's next sync.",
		Ref:      "https://github.com/kubernetes/kubernetes/issues/109811",
		Inspect:  inspectBackends,
	}
}

func inspectBackends(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("one backend")
	rep, err := noderules.Read(ctx, h, audit.Options{})
	if err != nil {
		return s, err
	}
	findings := rep.About("kubeproxy.backend.mixed")
	sets, err := h.Rulesets(ctx)
	if err != nil {
		return s, err
	}
	twice := chainsOfBoth(sets)
	switch {
	case rep.Mode == "":
		s.Skip = noderules.None
	case len(findings) > 0:
		rep.Fail(&s, findings)
	case len(twice) > 0:
		s.Minor = true
		s.Differs("the CNI's chains in both: "+strings.Join(twice, ", "), "flush the chains in the backend that the CNI no longer uses, usually "+
			"`iptables-legacy`, or reboot the node")
	default:
		for _, t := range rep.Filters {
			s.Evidence = append(s.Evidence, checks.Seen(t.Source, "contains kube-proxy's rules"))
		}
	}
	return s, nil
}
