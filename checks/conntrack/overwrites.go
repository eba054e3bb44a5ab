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

// conntrackOverwritten detects a parameter that both the policy and kube-proxy set: kube-proxy starts last and wins.
func conntrackOverwritten() checks.Problem {
	return checks.Problem{
		Name: "conntrack.kube-proxy-overwrites", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Warn, Weighs: true,
		Detects: "The policy requires an nf_conntrack_max that kube-proxy will overwrite when it starts.",
		Symptom: "nf_conntrack_max is correct after boot and differs once kube-proxy runs; kube-proxy 1.29 to 1.36 may even lower it.",
		How: "kube-proxy writes max(131072, 32768 x CPUs), since 1.36 at most 1048576, unless conntrack.maxPerCore is 0 (before 1.29 and since " +
			"1.37 it only raises the value). Its configuration is read from the static Pod's manifest, /var/lib/kube-proxy and the Pod's volumes. " +
			"Its version is assumed to be kubelet's. Without a configuration on the node, the verdict is unknown unless the defaults agree with " +
			"the policy.",
		Remedy: "set conntrack.maxPerCore: 0 in kube-proxy's configuration (kops: " +
			"kubeProxy.conntrackMaxPerCore: 0), or require in the policy the value that kube-proxy writes",
		TradeOff: "With maxPerCore 0, the value no longer grows with the machine.",
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
	required := p.Sysctls[i]
	s.Want = required.Want()
	cpus, ok := h.Fact(ctx, "node.cpus")
	n, isNumber := cpus.(int64)
	if !ok || !isNumber || n < 1 {
		return s, errors.New("cannot determine the number of CPUs, which kube-proxy multiplies by 32768")
	}
	c, err := config.ReadKubeProxy(h.Files)
	if err != nil {
		return s, err
	}
	if c.From == "" && strings.HasPrefix(p.Gate.Unit, "k3s") {
		c = config.K3sKubeProxy(h.Files, nil)[0]
		c.From = "k3s's arguments for kube-proxy"
	}
	if c.Writes(n, false) == 0 {
		s.Got, s.Pass = "maxPerCore 0: kube-proxy writes nothing", true
		s.Evidence = []checks.Evidence{checks.Seen(c.From, "conntrack.maxPerCore 0")}
		return s, nil
	}
	minor, _ := h.KubeletMinor(ctx) // 0 if unknown
	from := c.From
	if from == "" {
		from = "kube-proxy's defaults"
	}
	var writes []string
	agree, differ := false, false
	for _, mode := range writeModes(minor) {
		value := c.Writes(n, mode.capped)
		if mode.raisesOnly {
			if now, err := conntrackNumber(h, "max"); err == nil {
				value = max(value, int64(now))
			}
		}
		text := strconv.FormatInt(value, 10)
		if !slices.Contains(writes, text) {
			writes = append(writes, text)
		}
		agree, differ = agree || required.Allows(text), differ || !required.Allows(text)
	}
	s.Got = "kube-proxy writes " + strings.Join(writes, " or ")
	s.Evidence = []checks.Evidence{checks.Seen(from, fmt.Sprintf("max(%d, %d x %d CPUs)", c.Min, c.MaxPerCore, n))}
	switch {
	case !differ:
		s.Pass = true
	case agree:
		return s, fmt.Errorf("%s, depending on its version (1.36 has a cap, 1.37 only raises), which is unknown", s.Got)
	case c.From == "":
		return s, fmt.Errorf("by default %s instead of the policy's %s, but kube-proxy's configuration is not on "+
			"this node and may set conntrack.maxPerCore to 0", s.Got, s.Want)
	default:
		s.Remedy = fmt.Sprintf("set conntrack.maxPerCore: 0 in kube-proxy's configuration (%s), or require %s in the policy", c.From, writes[0])
	}
	return s, nil
}

// writeMode describes how kube-proxy writes nf_conntrack_max (SetSysctls of pkg/proxy/conntrack, before 1.33 of cmd/kube-proxy/app).
type writeMode struct{ capped, raisesOnly bool }

// writeModes returns the mode of a kube-proxy of a minor version. For an unknown version, 0, it returns all modes of 1.29
// and later.
func writeModes(minor int) []writeMode {
	switch {
	case minor == 0:
		return []writeMode{{}, {capped: true}, {capped: true, raisesOnly: true}}
	case minor < 29:
		return []writeMode{{raisesOnly: true}}
	}
	return []writeMode{{capped: minor >= 36, raisesOnly: minor >= 37}}
}
