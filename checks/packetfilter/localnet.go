package packetfilter

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/policy"
)

// routeLocalnetMartian: route_localnet opens 127.0.0.1 to the network unless a
// rule closes it again.
func routeLocalnetMartian() checks.Problem {
	return checks.Problem{
		Name: "route-localnet.martian", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn,
		Detects: "route_localnet is on and nothing drops packets from elsewhere to 127.0.0.0/8 (CVE-2020-8558).",
		Symptom: "A neighbour on the node's network, or a Pod with CAP_NET_RAW, reaches services that listen on 127.0.0.1 only.",
		How: "net.ipv4.conf.all.route_localnet is 1 and no IPv4 rule in KUBE-FIREWALL drops what is not from 127.0.0.0/8 to " +
			"127.0.0.0/8, or INPUT does not jump there.",
		Remedy: "let kubelet make its rules (makeIPTablesUtilChains: true), or run kube-proxy with --iptables-localhost-nodeports=false " +
			"and set route_localnet=0",
		TradeOff: "With route_localnet=0, NodePorts are not reachable at 127.0.0.1.",
		Ref:      "https://github.com/kubernetes/kubernetes/issues/92315",
		Inspect:  inspectRouteLocalnet,
	}
}

func inspectRouteLocalnet(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	const key = "net/ipv4/conf/all/route_localnet"
	s := checks.Passing("martian packets dropped")
	on, err := h.ReadSysctl(key)
	if err != nil {
		return s, err
	}
	if on == "0" {
		s.Skip = "route_localnet is 0"
		return s, nil
	}
	s.Evidence = []checks.Evidence{checks.Seen("/proc/sys/"+key, on)}
	var drop, jump string
	err = h.Rules.Dumps(ctx, func(source string, r io.Reader) error {
		if !strings.HasPrefix(source, "iptables") {
			return nil
		}
		lines := bufio.NewScanner(r)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			rule := lines.Text()
			switch {
			case martianDrop(rule):
				drop = rule
			case strings.HasPrefix(rule, "-A INPUT ") && strings.HasSuffix(rule, "-j KUBE-FIREWALL"):
				jump = rule
			default:
				continue
			}
			s.Evidence = append(s.Evidence, checks.Seen(source, rule))
		}
		return lines.Err()
	})
	if err != nil {
		return s, fmt.Errorf("looking for the rule that drops martian packets: %w", err)
	}
	switch {
	case drop == "":
		s.Differs("route_localnet=1 without the KUBE-FIREWALL rule", "")
	case jump == "":
		s.Differs("the rule is in KUBE-FIREWALL, and INPUT does not jump there", "restart kubelet: it puts the jump from INPUT to "+
			"KUBE-FIREWALL back")
	}
	return s, nil
}

// martianDrop recognises kubelet's rule in the text of iptables-save.
func martianDrop(rule string) bool {
	return strings.HasPrefix(rule, "-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 ") && strings.HasSuffix(rule, "-j DROP")
}
