package packetfilter

import (
	"context"

	"nodegate/checks"
	"nodegate/internal/audit"
	"nodegate/internal/host"
	"nodegate/internal/ruleset"
	"nodegate/policy"
)

// routeLocalnetMartian detects route_localnet without the rule that keeps 127.0.0.1 closed to the network.
func routeLocalnetMartian() checks.Problem {
	return checks.Problem{
		Name: "route-localnet.martian", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn, Moves: true,
		Detects: "route_localnet is on, and no rule drops packets from elsewhere to 127.0.0.0/8 (CVE-2020-8558).",
		Symptom: "A neighbour on the node's network, or a Pod with CAP_NET_RAW, can reach services that listen " +
			"on 127.0.0.1 only.",
		How: "net.ipv4.conf.all.route_localnet is 1, and no IPv4 rule in KUBE-FIREWALL drops packets from " +
			"other addresses to 127.0.0.0/8, or INPUT does not jump there.",
		Remedy: "let kubelet create its rules (makeIPTablesUtilChains: true), or run kube-proxy with " +
			"--iptables-localhost-nodeports=false and set route_localnet=0",
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
	sets, err := h.Rulesets(ctx)
	if err != nil {
		return s, err
	}
	dropped, reached := false, false
	for _, t := range ruleset.Tables(sets, "filter") {
		if t.Family == ruleset.IPv6 {
			continue
		}
		jump, drop := firewallJump(t), audit.MartianDrop(t)
		for _, r := range []*ruleset.Rule{jump, drop} {
			if r != nil {
				s.Evidence = append(s.Evidence, checks.SeenRule(t.Source, r.Text))
			}
		}
		dropped = dropped || drop != nil
		reached = reached || drop != nil && jump != nil // a jump in one backend does not reach a rule in the other
	}
	switch {
	case !dropped:
		s.Differs("route_localnet=1 without the KUBE-FIREWALL rule", "")
	case !reached:
		s.Differs("INPUT does not jump to the rule in KUBE-FIREWALL", "restart kubelet to restore the jump from INPUT to KUBE-FIREWALL")
	}
	return s, nil
}

// firewallJump returns the rule of INPUT that sends every packet to KUBE-FIREWALL, or nil.
func firewallJump(filter *ruleset.Table) *ruleset.Rule {
	for r := range filter.Rules("INPUT") {
		if r.Target == "KUBE-FIREWALL" && r.Always() {
			return r
		}
	}
	return nil
}
