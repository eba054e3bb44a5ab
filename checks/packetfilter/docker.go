package packetfilter

import (
	"context"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/ruleset"
	"nodegate/policy"
)

// dockerForwardDrop: Docker closes forwarding for everybody when it is the one that opens ip_forward.
func dockerForwardDrop() checks.Problem {
	return checks.Problem{
		Name: "docker.forward-drop", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn, Moves: true,
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
	sets, err := h.Rulesets(ctx)
	if err != nil {
		return s, err
	}
	var got, commands []string
	docker := false
	for _, t := range ruleset.Tables(sets, "filter") {
		if t.Family == ruleset.IPv6 || t.Chain("DOCKER") == nil {
			continue
		}
		docker = true
		if forward := t.Chain("FORWARD"); forward == nil || forward.Policy != "DROP" {
			s.Evidence = append(s.Evidence, checks.Seen(t.Source, ":FORWARD ACCEPT"))
			continue
		}
		if r := accepting(t, "FORWARD", map[string]bool{}); r != nil {
			s.Evidence = append(s.Evidence, checks.Seen(t.Source, r.Text))
			continue
		}
		s.Evidence = append(s.Evidence, checks.Seen(t.Source, ":FORWARD DROP"))
		got = append(got, "FORWARD drops in "+ruleset.Program(t.Source))
		commands = append(commands, ruleset.Program(t.Source)+" -P FORWARD ACCEPT")
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
// connections of links that are not Docker's, nil if there is none.
func accepting(t *ruleset.Table, chain string, seen map[string]bool) *ruleset.Rule {
	seen[chain] = true
	for r := range t.Rules(chain) {
		if extra := r.Extra(); onlyDocker(r, extra) || onlyOld(extra.States) {
			continue
		}
		if r.Target == "ACCEPT" {
			return r
		}
		if r.Jump != 0 && !seen[r.Target] && !ofKubernetes(r.Target) {
			if found := accepting(t, r.Target, seen); found != nil {
				return found
			}
		}
	}
	return nil
}

// ofKubernetes reports whether a chain is one of those of kube-proxy and kubelet, which accept only marked and established packets.
func ofKubernetes(chain string) bool {
	return strings.HasPrefix(chain, "KUBE-") && !strings.HasPrefix(chain, "KUBE-ROUTER")
}

// onlyDocker reports whether a rule is for packets of Docker's own bridges.
func onlyDocker(r *ruleset.Rule, extra ruleset.Extra) bool {
	of := func(link string) bool { return strings.HasPrefix(link, "docker") || strings.HasPrefix(link, "br-") }
	return of(extra.Out) || of(extra.In) && !r.Has(ruleset.NotInterface)
}

// onlyOld reports whether all conntrack states are those of connections that
// something else has accepted.
func onlyOld(states string) bool {
	return states != "" && !slices.Contains(strings.Split(states, ","), "NEW")
}
