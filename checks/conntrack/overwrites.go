package conntrack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/config"
	"nodegate/policy"
)

// conntrackOverwritten: two owners of one parameter; the one that starts last wins.
func conntrackOverwritten() checks.Problem {
	return checks.Problem{
		Name: "conntrack.kube-proxy-overwrites", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Warn,
		Detects: "The policy asks for an nf_conntrack_max that kube-proxy will overwrite when it starts.",
		Symptom: "nf_conntrack_max is right after boot and another number once kube-proxy runs; from 1.29 to 1.36 even a smaller one.",
		How: "kube-proxy writes max(131072, 32768 x CPUs), from 1.36 at most 1048576, unless conntrack.maxPerCore is 0 (before 1.29 and " +
			"from 1.37 it only raises); its configuration is looked for in the static Pod's manifest, /var/lib/kube-proxy and the Pod's " +
			"volumes. The version is taken to be kubelet's. Where no configuration is on the node, the answer is unknown unless the " +
			"defaults agree with the policy.",
		Remedy: "set conntrack.maxPerCore: 0 in kube-proxy's configuration (kops: kubeProxy.conntrackMaxPerCore: 0), or let the policy ask " +
			"for what kube-proxy writes",
		TradeOff: "With maxPerCore 0 the number no longer grows with the machine.",
		Ref:      "https://kubernetes.io/docs/reference/config-api/kube-proxy-config.v1alpha1/",
		Inspect:  inspectConntrackOverwritten,
	}
}

func inspectConntrackOverwritten(ctx context.Context, h *host.Host, p *policy.Policy) (checks.State, error) {
	var s checks.State
	i := slices.IndexFunc(p.Sysctls, func(sys policy.Sysctl) bool {
		return (sys.Key == "net/netfilter/nf_conntrack_max" || sys.Key == "net/nf_conntrack_max") && sys.Applies()
	})
	if i < 0 {
		s.Skip = "the policy leaves nf_conntrack_max to kube-proxy"
		return s, nil
	}
	asked := p.Sysctls[i]
	s.Want = asked.Want()
	cpus, ok := h.Fact(ctx, "node.cpus")
	n, isNumber := cpus.(int64)
	if !ok || !isNumber || n < 1 {
		return s, errors.New("cannot tell how many CPUs there are, which kube-proxy multiplies by 32768")
	}
	c, err := config.ReadKubeProxy(h.Files)
	if err != nil {
		return s, err
	}
	if c.From == "" && strings.HasPrefix(p.Gate.Unit, "k3s") {
		c = config.K3sKubeProxy(h.Files, nil)[0]
		c.From = "what k3s starts kube-proxy with"
	}
	if c.Writes(n, false) == 0 {
		s.Got, s.Pass = "maxPerCore 0: kube-proxy writes nothing", true
		s.Evidence = []checks.Evidence{checks.Seen(c.From, "conntrack.maxPerCore 0")}
		return s, nil
	}
	minor, _ := h.KubeletMinor(ctx) // unknown: either
	from := c.From
	if from == "" {
		from = "kube-proxy's defaults"
	}
	var writes []string
	agree, differ := false, false
	for _, is := range ways(minor) {
		value := c.Writes(n, is.capped)
		if is.raisesOnly {
			if now, err := conntrackNumber(h, "max"); err == nil {
				value = max(value, int64(now))
			}
		}
		text := strconv.FormatInt(value, 10)
		if !slices.Contains(writes, text) {
			writes = append(writes, text)
		}
		agree, differ = agree || asked.Allows(text), differ || !asked.Allows(text)
	}
	s.Got = "kube-proxy writes " + strings.Join(writes, " or ")
	s.Evidence = []checks.Evidence{checks.Seen(from, fmt.Sprintf("max(%d, %d x %d CPUs)", c.Min, c.MaxPerCore, n))}
	switch {
	case !differ:
		s.Pass = true
	case agree:
		return s, fmt.Errorf("%s, depending on its version (1.36 has a cap, 1.37 only raises), which cannot be told here", s.Got)
	case c.From == "":
		return s, fmt.Errorf("by default %s over the policy's %s, "+
			"and no configuration on this node tells whether conntrack.maxPerCore is 0", s.Got, s.Want)
	default:
		s.Remedy = fmt.Sprintf("set conntrack.maxPerCore: 0 in kube-proxy's configuration (%s), or let the policy ask for %s", c.From, writes[0])
	}
	return s, nil
}

// way is how kube-proxy writes nf_conntrack_max (SetSysctls of pkg/proxy/conntrack, before 1.33 of cmd/kube-proxy/app).
type way struct{ capped, raisesOnly bool }

// ways returns how the kube-proxy of a minor version writes it; of an unknown one, 0, how those of 1.29 and later do.
func ways(minor int) []way {
	switch {
	case minor == 0:
		return []way{{}, {capped: true}, {capped: true, raisesOnly: true}}
	case minor < 29:
		return []way{{raisesOnly: true}}
	}
	return []way{{capped: minor >= 36, raisesOnly: minor >= 37}}
}
