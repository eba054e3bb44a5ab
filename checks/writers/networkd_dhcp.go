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

// networkdCNILinks: networkd asks for an address on links of the CNI, on which no DHCP server answers.
func networkdCNILinks() checks.Problem {
	return checks.Problem{
		Name: "networkd.cni-links", Stages: []checks.Stage{checks.Image, checks.Boot, checks.Run}, Severity: policy.Warn,
		Detects: "A .network file makes systemd-networkd run DHCP on links that the CNI creates.",
		Symptom: "Pods lose their address or their routes when networkd touches their link; systemd-networkd-wait-online waits until its " +
			"timeout at each boot, and the log fills with requests that nobody answers.",
		How: "systemd-networkd.service is active or enabled, and the first .network file that matches a veth, or a link of flannel or Calico " +
			"if the node has that CNI, sets DHCP=. A condition that only a running machine decides, such as Virtualization=, counts as true.",
		Remedy:  "exclude the CNI's links from the file: Driver=!veth and Type=!vxlan tunnel bridge in its [Match] section",
		Ref:     "https://github.com/projectcalico/calico/issues/2471",
		Inspect: inspectNetworkdCNILinks,
	}
}

func inspectNetworkdCNILinks(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("no DHCP on the CNI's links")
	on, said, err := h.UnitOn(ctx, networkd)
	if err != nil {
		return s, err
	}
	if !on {
		s.Skip = "systemd-networkd is off"
		return s, nil
	}
	files, err := config.NetworkFiles(h.Files)
	if err != nil {
		return s, err
	}
	present, _, err := presentLinks(h)
	if err != nil {
		return s, err
	}
	s.Evidence = []checks.Evidence{said}
	var wrong []string
	// The veth stands for the links of later Pods.
	for _, l := range append(present, cniLink{pattern: "veth*", device: config.Device{Name: "veth0a1b2c3d", Kind: "veth"}}) {
		for _, c := range config.LinkFor(files, l.device) {
			e, set := config.Last(c.Entries, "Network", "DHCP")
			if !set || slices.Contains([]string{"no", "false", "0", "off", "none"}, e.Value) {
				continue
			}
			if seen := checks.Seen(e.At(), "DHCP="+e.Value); !slices.Contains(s.Evidence, seen) {
				s.Evidence = append(s.Evidence, seen)
			}
			wrong = append(wrong, l.pattern)
			break
		}
	}
	if wrong != nil {
		s.Differs("DHCP on "+strings.Join(wrong, ", "), "")
	}
	return s, nil
}
