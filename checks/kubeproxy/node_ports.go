package kubeproxy

import (
	"context"
	"fmt"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/host/config"
	"nodegate/policy"
)

// The API server's default range of NodePorts.
const firstNodePort, lastNodePort = 30000, 32767

// nodePortOverlap detects that the kernel assigns ports of Services to outgoing connections.
func nodePortOverlap() checks.Problem {
	return checks.Problem{
		Name: "nodeport.overlap", Stages: []checks.Stage{checks.Boot, checks.Run}, Severity: policy.Warn,
		Detects:  "The kernel assigns local ports from the NodePort range to outgoing connections.",
		Symptom:  "Occasionally a connection from the node times out: its replies are treated as NodePort traffic and sent to a Pod.",
		How:      "net.ipv4.ip_local_port_range overlaps 30000-32767, and net.ipv4.ip_local_reserved_ports does not cover the overlap.",
		Remedy:   "set net.ipv4.ip_local_reserved_ports=30000-32767",
		TradeOff: "Outgoing connections have 2,768 fewer local ports.",
		Ref:      "https://github.com/kubernetes/kubernetes/issues/111682",
		Inspect:  inspectNodePortOverlap,
	}
}

func inspectNodePortOverlap(_ context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("30000-32767 not used for outgoing connections")
	local, err := h.ReadSysctl("net/ipv4/ip_local_port_range")
	if err != nil {
		return s, err
	}
	var low, high int
	if _, err := fmt.Sscan(local, &low, &high); err != nil {
		return s, fmt.Errorf("reading net.ipv4.ip_local_port_range %q: %w", local, err)
	}
	s.Evidence = []checks.Evidence{checks.Seen("/proc/sys/net/ipv4/ip_local_port_range", local)}
	from, to := max(low, firstNodePort), min(high, lastNodePort)
	if from > to {
		return s, nil
	}
	reserved, err := h.ReadSysctl("net/ipv4/ip_local_reserved_ports")
	if err != nil {
		return s, err
	}
	s.Evidence = append(s.Evidence, checks.Seen("/proc/sys/net/ipv4/ip_local_reserved_ports", reserved))
	open, err := config.FirstUnlisted(reserved, from, to)
	if err != nil {
		return s, fmt.Errorf("reading net.ipv4.ip_local_reserved_ports: %w", err)
	}
	if open <= to {
		s.Differs(fmt.Sprintf("local ports %d-%d, port %d not reserved", low, high, open),
			"run `sysctl -w 'net.ipv4.ip_local_reserved_ports="+strings.TrimPrefix(reserved+",30000-32767", ",")+
				"'` and add the sysctl to the policy")
	}
	return s, nil
}
