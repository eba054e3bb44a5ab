package writers

import (
	"context"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/config"
	"nodegate/policy"
)

// runtimeWriters returns the programs on this machine that are known to write a parameter of the
// policy while they run. They have not overwritten it yet, so they are only evidence.
func runtimeWriters(ctx context.Context, h *host.Host, p *policy.Policy) ([]checks.Evidence, error) {
	exact := func(key string) string {
		i := slices.IndexFunc(p.Sysctls, func(s policy.Sysctl) bool { return string(s.Key) == key && s.Value != "" })
		if i < 0 {
			return ""
		}
		return p.Sysctls[i].Value
	}
	var found []checks.Evidence
	k, err := h.Kubelet()
	if err != nil {
		return nil, err
	}
	if k.Found && k.Values["protectKernelDefaults"].Value != "true" {
		for _, d := range config.KernelDefaults() {
			if v := exact(d[0]); v != "" && v != d[1] {
				found = append(found, checks.Seen("kubelet", "writes "+policy.Key(d[0]).String()+" = "+d[1]+" at startup because "+
					"protectKernelDefaults is off"))
			}
		}
	}
	for _, s := range p.Sysctls {
		key := string(s.Key)
		if slices.Contains([]string{"net/netfilter/nf_conntrack_max", "net/nf_conntrack_max"}, key) ||
			strings.HasPrefix(key, "net/netfilter/nf_conntrack_tcp_timeout_") {
			found = append(found, checks.Seen("kube-proxy", "writes "+s.Key.String()+" at startup unless its conntrack settings are 0"))
		}
	}
	on, _, err := h.UnitOn(ctx, "tuned.service")
	if on {
		profile, _, _ := h.ReadIfAny("/etc/tuned/active_profile")
		found = append(found, checks.Seen("tuned.service", "applies its profile's parameters at every start ("+
			strings.Join(strings.Fields(string(profile)), " ")+")"))
	}
	return found, err
}
