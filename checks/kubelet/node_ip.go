package kubelet

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// nodeIP: kubelet reports no addresses while no link has the one in --node-ip.
func nodeIP() checks.Problem {
	return checks.Problem{
		Name: "kubelet.node-ip", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Warn, Later: true,
		Detects: "No link of the machine has the address in --node-ip, or kubelet does not accept the address: loopback, link-local or " +
			"multicast.",
		Symptom: "kubelet runs and logs \"failed to validate nodeIP: node IP ... not found in the host's network interfaces\"; the Node has no " +
			"address, so kubectl logs and exec fail and the CNI does not start.",
		How: "Compares each address of --node-ip with those of all links. 0.0.0.0 and :: are allowed. Warns only, because the link may come " +
			"from a program that runs in a Pod; set severity = \"block\" if the network is complete before kubelet starts. Skipped without " +
			"--node-ip.",
		Remedy: "correct --node-ip, or start kubelet after the link has its address: `systemctl edit kubelet`, After=network-online.target",
		Ref:    "https://kubernetes.io/docs/reference/command-line-tools-reference/kubelet/",
		Inspect: func(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
			return inspectNodeIP(ctx, h)
		},
	}
}

func inspectNodeIP(ctx context.Context, h *host.Host) (checks.State, error) {
	s := checks.Passing("addresses of this machine's links")
	k, known, err := readConfigAndCommand(h, &s)
	if !known {
		return s, err
	}
	flag := k.Flags["node-ip"]
	var wanted []netip.Addr
	for text := range strings.SplitSeq(flag.Value, ",") {
		// ParseNodeIPArgument ignores texts that are not addresses; kubelet.values judges pairs.
		if ip, err := netip.ParseAddr(strings.TrimSpace(text)); err == nil && !ip.IsUnspecified() {
			wanted = append(wanted, ip.Unmap())
		}
	}
	if wanted == nil {
		s.Skip = "kubelet has no --node-ip with a particular address"
		return s, nil
	}
	own, err := h.Links.Addresses(ctx)
	if err != nil {
		return s, err
	}
	s.Evidence = []checks.Evidence{checks.Seen(flag.From.Source, flag.From.Text)}
	var wrong []string
	for _, ip := range wanted { // validateNodeIP in pkg/kubelet/kubelet_node_status.go
		switch {
		case ip.IsLoopback():
			wrong = append(wrong, ip.String()+" is a loopback address")
		case ip.IsMulticast():
			wrong = append(wrong, ip.String()+" is a multicast address")
		case ip.IsLinkLocalUnicast():
			wrong = append(wrong, ip.String()+" is a link-local address")
		case !slices.Contains(own, ip):
			wrong = append(wrong, "no link has "+ip.String())
		}
	}
	if wrong != nil {
		s.Differs(strings.Join(wrong, "; "), "")
	}
	return s, nil
}
