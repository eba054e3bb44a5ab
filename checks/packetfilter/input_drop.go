package packetfilter

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/checks/noderules"
	"nodegate/internal/audit"
	"nodegate/internal/host"
	"nodegate/internal/ruleset"
	"nodegate/policy"
)

// inputDrop detects a firewall on the node that drops the packets which the cluster sends to the node itself.
func inputDrop() checks.Problem {
	return checks.Problem{
		Name: "packetfilter.input-drop", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn, Moves: true,
		Detects: "A DROP or REJECT for all packets in INPUT comes before the rule that accepts the overlay network or connections to kubelet.",
		Symptom: "Pods of this node reach no Pod of another node, because VXLAN packets are lost. `kubectl logs` and `kubectl exec` time " +
			"out. The images of some clouds have such a REJECT at the end of INPUT.",
		How: "The check follows a new packet from another machine to the port of each VXLAN link, and to kubelet's port 10250, through raw, " +
			"mangle, nat and filter of all backends, in the kernel's order, and a packet of this node's Pods to kubelet's port (if a rule takes " +
			"their range, as Tailscale's does with 100.64.0.0/10). It fails if every way of the packet ends in a DROP, a REJECT or a policy DROP. " +
			"The packet comes in by the node's only uplink, if there is no other link to other machines. If the rules do not decide a condition " +
			"(the sender's address, a set), the packet takes both ways.",
		Remedy: "insert a rule that accepts the cluster's packets before the one that drops them, and save it in the firewall's " +
			"configuration",
		TradeOff: "The port is then open to every machine that the rule does not exclude: limit the rule to the addresses of the nodes.",
		Ref:      "https://github.com/k3s-io/k3s/issues/4847",
		Inspect:  inspectInputDrop,
	}
}

func inspectInputDrop(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("the cluster's packets reach this node")
	sets, err := h.Rulesets(ctx)
	if err != nil {
		return s, err
	}
	if !isKubernetes(sets) {
		s.Skip = noderules.None
		return s, nil
	}
	links, err := h.Links.List(ctx)
	if err != nil {
		return s, err
	}
	var got, accept []string
	uplink := audit.OnlyUplink(ctx, h)
	judge := func(family, what string, p audit.Packet) {
		if !p.Source.IsValid() {
			p.In = uplink
		}
		step, lost := audit.Delivered(sets, family, p)
		bySource := strings.Contains(step.Rule, " -s ") || strings.Contains(step.Rule, " saddr ")
		if !lost || p.Source.IsValid() && (!bySource || strings.Contains(step.Rule, "dport")) { // closed to Pods on purpose
			return
		}
		got = append(got, what)
		program := map[string]string{ruleset.IPv4: "iptables", ruleset.IPv6: "ip6tables"}[family]
		accept = append(accept, fmt.Sprintf("%s -I INPUT -p %s --dport %d -j ACCEPT", program, p.Protocol, p.Port))
		if seen := checks.Seen(step.Source, stepText(step)); !slices.Contains(s.Evidence, seen) {
			s.Evidence = append(s.Evidence, seen)
		}
	}
	for _, l := range links {
		if l.VXLAN != nil && l.VXLAN.Port > 0 && l.VXLAN.Port < 1<<16 {
			family := map[bool]string{false: ruleset.IPv4, true: ruleset.IPv6}[l.VXLAN.V6]
			p := audit.Packet{Protocol: "udp", Port: uint16(l.VXLAN.Port)}
			judge(family, fmt.Sprintf("port %d/udp of %s is closed", l.VXLAN.Port, l.Name), p)
		}
	}
	judge(ruleset.IPv4, "port 10250/tcp of kubelet is closed", audit.Packet{Protocol: "tcp", Port: 10250})
	if pods := audit.PodRange(sets, ruleset.IPv4); got == nil && pods.IsValid() {
		p := audit.Packet{Source: pods, Protocol: "tcp", Port: 10250}
		judge(ruleset.IPv4, "port 10250/tcp of kubelet is closed to the Pods of this node", p)
	}
	if got != nil {
		s.Differs(strings.Join(got, ", "), "insert a rule that accepts the cluster's packets before the one that drops them, for example `"+
			strings.Join(accept, "; ")+"`, and save it in the firewall's configuration")
	}
	return s, nil
}
