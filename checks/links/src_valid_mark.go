package links

import (
	"context"
	"slices"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// srcValidMark: with it, Cilium's proxy loses the packets of Pods.
func srcValidMark() checks.Problem {
	return checks.Problem{
		Name: "src-valid-mark.cilium", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn,
		Detects:  "net.ipv4.conf.all.src_valid_mark is 1 beside Cilium's links, as Tailscale 1.98 sets it.",
		Symptom:  "Pods under an L7 policy of Cilium time out, and nothing is logged; others work.",
		How:      "The parameter is 1, and there are links lxc* other than LXC's bridge.",
		Remedy:   "run: sysctl -w net.ipv4.conf.all.src_valid_mark=0; and put it into the policy",
		TradeOff: "Tailscale's exit node and subnet routes need strict filtering off (rp_filter 2) then.",
		Ref:      "https://github.com/cilium/cilium/issues/48706",
		Inspect: func(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
			const key = "net/ipv4/conf/all/src_valid_mark"
			s := checks.Passing("src_valid_mark=0")
			links, err := h.Links.List(ctx)
			if err != nil {
				return s, err
			}
			if !slices.ContainsFunc(links, podOfCilium) {
				s.Skip = "no links of Cilium"
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
