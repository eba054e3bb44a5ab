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

// dockerForwardDrop detects a FORWARD policy that Docker set to DROP, as it does when it enables ip_forward itself.
func dockerForwardDrop() checks.Problem {
	return checks.Problem{
		Name: "docker.forward-drop", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn, Moves: true,
		Detects: "Docker set the policy of FORWARD to DROP, and no rule accepts the traffic of Pods.",
		Symptom: "Pods cannot reach anything outside their node and cannot be reached from there, although " +
			"every Pod runs and the node is Ready.",
		How: "Table filter of an IPv4 iptables backend has :FORWARD DROP and a chain DOCKER, and FORWARD " +
			"leads to no ACCEPT for new connections other than on docker0 and br-*. kube-proxy's own chains are " +
			"ignored: they accept only marked and established packets.",
		Remedy: "set net.ipv4.ip_forward=1 before Docker starts, so that it does not change the policy of " +
			"FORWARD, and run `iptables -P FORWARD ACCEPT`",
		TradeOff: "With policy ACCEPT, the node also forwards for its neighbours, as any Kubernetes node does.",
		Ref:      "https://docs.docker.com/engine/network/packet-filtering-firewalls/",
		Inspect:  inspectDockerForwardDrop,
	}
}

func inspectDockerForwardDrop(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("FORWARD accepts Pod traffic")
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
		if r := findAccept(t, "FORWARD", map[string]bool{}); r != nil {
			s.Evidence = append(s.Evidence, checks.Seen(t.Source, r.Text))
			continue
		}
		s.Evidence = append(s.Evidence, checks.Seen(t.Source, ":FORWARD DROP"))
		got = append(got, "FORWARD drops in "+ruleset.Program(t.Source))
		commands = append(commands, ruleset.Program(t.Source)+" -P FORWARD ACCEPT")
	}
	switch {
	case !docker:
		s.Skip = "no Docker rules found"
	case got != nil:
		s.Differs(strings.Join(got, ", "), "run `"+strings.Join(commands, "; ")+"` and set net.ipv4.ip_forward=1 before Docker starts, or it "+
			"sets FORWARD to DROP again")
	}
	return s, nil
}

// findAccept returns the first rule reachable from a chain that accepts new connections on links other than Docker's,
// or nil.
func findAccept(t *ruleset.Table, chain string, seen map[string]bool) *ruleset.Rule {
	seen[chain] = true
	for r := range t.Rules(chain) {
		if extra := r.Extra(); matchesOnlyDocker(r, extra) || excludesNew(extra.States) {
			continue
		}
		if r.Target == "ACCEPT" {
			return r
		}
		if r.Jump != 0 && !seen[r.Target] && !isKubernetesChain(r.Target) {
			if found := findAccept(t, r.Target, seen); found != nil {
				return found
			}
		}
	}
	return nil
}

// isKubernetesChain reports whether a chain belongs to kube-proxy or kubelet. Their chains accept only marked and
// established packets.
func isKubernetesChain(chain string) bool {
	return strings.HasPrefix(chain, "KUBE-") && !strings.HasPrefix(chain, "KUBE-ROUTER")
}

// matchesOnlyDocker reports whether a rule matches only packets of Docker's own bridges.
func matchesOnlyDocker(r *ruleset.Rule, extra ruleset.Extra) bool {
	of := func(link string) bool { return strings.HasPrefix(link, "docker") || strings.HasPrefix(link, "br-") }
	return of(extra.Out) || of(extra.In) && !r.Has(ruleset.NotInterface)
}

// excludesNew reports whether the conntrack states match only connections that another rule has already accepted.
func excludesNew(states string) bool {
	return states != "" && !slices.Contains(strings.Split(states, ","), "NEW")
}
