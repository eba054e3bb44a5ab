package packetfilter

import (
	"context"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/checks/kubeproxy"
	"nodegate/internal/host"
	"nodegate/policy"
)

// dockerForwardDrop: Docker closes forwarding for everybody when it is the one that opens ip_forward.
func dockerForwardDrop() checks.Problem {
	return checks.Problem{
		Name: "docker.forward-drop", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn,
		Detects: "Docker set the policy of FORWARD to DROP, and no rule accepts what Pods forward.",
		Symptom: "Pods reach nothing off their node and nothing reaches them, though every Pod runs and the node is Ready.",
		How: "Table filter of an IPv4 iptables backend has :FORWARD DROP and a chain DOCKER, and FORWARD leads to no ACCEPT for new " +
			"connections other than on docker0 and br-*. kube-proxy's own chains do not count: they accept only marked and established packets.",
		Remedy:   "set net.ipv4.ip_forward=1 before Docker starts (then it leaves the policy alone), and run: iptables -P FORWARD ACCEPT",
		TradeOff: "With policy ACCEPT the node forwards for its neighbours too, as any Kubernetes node does.",
		Ref:      "https://docs.docker.com/engine/network/packet-filtering-firewalls/",
		Inspect:  inspectDockerForwardDrop,
	}
}

func inspectDockerForwardDrop(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("FORWARD accepts Pods")
	tables, err := kubeproxy.FilterTables(ctx, h)
	if err != nil {
		return s, err
	}
	var got, commands []string
	docker := false
	for _, t := range tables {
		if strings.HasPrefix(t.Source, "ip6") {
			continue
		}
		if _, ok := t.Policy["DOCKER"]; !ok {
			continue
		}
		docker = true
		if t.Policy["FORWARD"] != "DROP" {
			s.Evidence = append(s.Evidence, checks.Seen(t.Source, ":FORWARD "+t.Policy["FORWARD"]))
			continue
		}
		if rule := accepting(t, "FORWARD", map[string]bool{}); rule != "" {
			s.Evidence = append(s.Evidence, checks.Seen(t.Source, rule))
			continue
		}
		s.Evidence = append(s.Evidence, checks.Seen(t.Source, ":FORWARD DROP"))
		got = append(got, "FORWARD drops in "+t.Source)
		commands = append(commands, strings.TrimSuffix(t.Source, "-save")+" -P FORWARD ACCEPT")
	}
	switch {
	case !docker:
		s.Skip = "Docker has no rules here"
	case got != nil:
		s.Differs(strings.Join(got, ", "), "run: "+strings.Join(commands, "; ")+"; and set net.ipv4.ip_forward=1 before Docker starts, or it "+
			"closes FORWARD again")
	}
	return s, nil
}

// accepting returns the first rule, reachable from a chain, that accepts new
// connections of links that are not Docker's, or "".
func accepting(t *kubeproxy.FilterTable, chain string, seen map[string]bool) string {
	seen[chain] = true
	for _, rule := range t.Rules[chain] {
		words := kubeproxy.RuleWords(rule)
		if onlyDocker(words) || onlyOld(kubeproxy.WordAfter(words, "--ctstate")) {
			continue
		}
		target := kubeproxy.WordAfter(words, "-j")
		if target == "" {
			target = kubeproxy.WordAfter(words, "-g")
		}
		if target == "ACCEPT" {
			return "-A " + chain + " " + rule
		}
		if !seen[target] && t.Policy[target] == "-" && target != "KUBE-FORWARD" && target != "KUBE-FIREWALL" {
			if found := accepting(t, target, seen); found != "" {
				return found
			}
		}
	}
	return ""
}

// onlyDocker reports whether a rule is for packets of Docker's own bridges.
func onlyDocker(words []string) bool {
	for i, w := range words {
		if (w == "-i" || w == "-o") && i+1 < len(words) && (i == 0 || words[i-1] != "!") &&
			(strings.HasPrefix(words[i+1], "docker") || strings.HasPrefix(words[i+1], "br-")) {
			return true
		}
	}
	return false
}

// onlyOld reports whether all conntrack states are those of connections that
// something else has accepted.
func onlyOld(states string) bool {
	return states != "" && !slices.Contains(strings.Split(states, ","), "NEW")
}
