package links

import (
	"context"
	"slices"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// srcValidMark detects src_valid_mark on a node with Cilium, whose proxy then loses packets of Pods.
func srcValidMark() checks.Problem {
	return checks.Problem{
		Name: "src-valid-mark.cilium", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn,
		Detects:  "net.ipv4.conf.all.src_valid_mark is 1 on a node with Cilium, as Tailscale 1.98 sets it.",
		Symptom:  "Connections of Pods under an L7 policy of Cilium time out and nothing is logged; other Pods work.",
		How:      "The parameter is 1, and links named lxc* other than LXC's bridge exist.",
		Remedy:   "run `sysctl -w net.ipv4.conf.all.src_valid_mark=0` and add the sysctl to the policy",
		TradeOff: "Tailscale's exit node and subnet routes then need strict filtering off (rp_filter 2).",
		Ref:      "https://github.com/cilium/cilium/issues/48706",
		Inspect: func(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
			const key = "net/ipv4/conf/all/src_valid_mark"
			s := checks.Passing("src_valid_mark=0")
			links, err := h.Links.List(ctx)
			if err != nil {
				return s, err
			}
			if !slices.ContainsFunc(links, isCiliumPodLink) {
				s.Skip = "no Cilium links"
				return s, nil
			}
			value, err := h.ReadSysctl(key)
			if err != nil {
				return s, err
			}
			s.Evidence = []checks.Evidence{checks.Seen("/proc/sys/"+key, value)}
			if value != "0" {
				s.Differs("src_valid_mark="+value, "")
			}
			return s, nil
		},
	}
}
