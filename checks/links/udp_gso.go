package links

import (
	"context"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/config"
	"nodegate/policy"
)

// udpGSO detects VXLAN over a tun link on a kernel that drops the UDP packets which a program aggregated before it wrote
// them to the link.
func udpGSO() checks.Problem {
	return checks.Problem{
		Name: "vxlan.udp-gso", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn,
		Detects: "VXLAN runs over a tun link, such as Tailscale's, on a kernel that drops aggregated UDP " +
			"packets in a tunnel.",
		Symptom: "Pods on other nodes answer ping, but a download stalls or runs at a few KiB/s.",
		How: "A VXLAN link sends through a tun link, and the kernel is 6.2 to 6.8.4, except 6.6.26 and " +
			"later releases of 6.6. On Ubuntu, /proc/version_signature names the kernel version. Other " +
			"distributions may have backported the fix.",
		Remedy: "upgrade to Linux 6.8.5 or later; until then, set TS_TUN_DISABLE_UDP_GRO=true in " +
			"/etc/default/tailscaled and restart tailscaled",
		TradeOff: "Without aggregated packets, the tunnel uses more CPU.",
		Ref:      "https://github.com/tailscale/tailscale/issues/11026",
		Inspect:  inspectUDPGSO,
	}
}

func inspectUDPGSO(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("a kernel that forwards aggregated UDP packets")
	links, err := h.Links.List(ctx)
	if err != nil {
		return s, err
	}
	over := slices.IndexFunc(links, func(l host.Link) bool {
		return l.VXLAN != nil && slices.ContainsFunc(links, func(p host.Link) bool { return p.Name == l.VXLAN.Parent && p.Kind == "tun" })
	})
	if over < 0 {
		s.Skip = "no VXLAN over a tun link"
		return s, nil
	}
	release, err := h.Kernel.Release()
	if err != nil {
		return s, err
	}
	source := "uname -r"
	signature, found, err := h.ReadIfAny("/proc/version_signature") // Ubuntu 6.8.0-31.31-generic 6.8.1
	if err != nil {
		return s, err
	}
	if f := strings.Fields(string(signature)); found && len(f) == 3 {
		source, release = "/proc/version_signature", f[2]
	}
	kernel, err := config.ParseKernelRelease(release)
	if err != nil {
		return s, err
	}
	s.Evidence = []checks.Evidence{
		checks.Seen(links[over].Name, "sends through "+links[over].VXLAN.Parent+", a tun link"), checks.Seen(source, release),
	}
	v := kernel.Version[:]
	fixed := slices.Compare(v, []int{6, 8, 5}) >= 0 || slices.Equal(v[:2], []int{6, 6}) && v[2] >= 26
	if slices.Compare(v, []int{6, 2, 0}) >= 0 && !fixed {
		s.Differs(kernel.Numbers, "")
	}
	return s, nil
}
