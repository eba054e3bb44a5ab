package packetfilter

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"strings"

	"nodegate/checks"
	"nodegate/internal/host"
	"nodegate/internal/ruleset"
	"nodegate/policy"
)

// hostPort detects a Pod's hostPort that takes over a port of the node: the packet is translated before the node's own
// programs receive it. It also detects two Pods with one hostPort, of which the first one in portmap's chain gets all packets.
func hostPort() checks.Problem {
	return checks.Problem{
		Name: "packetfilter.host-port", Stages: []checks.Stage{checks.Run}, Severity: policy.Warn, Moves: true,
		Detects: "A Pod's hostPort takes the port of kubelet, SSH, a NodePort or another Pod.",
		Symptom: "SSH to the node, `kubectl logs` and `kubectl exec`, or a NodePort reach a Pod instead; the " +
			"node may become NotReady for the API server only. A Pod with a hostPort gets no packets.",
		How: "A rule in chain CNI-HOSTPORT-DNAT (portmap's) is for TCP port 22 or 10250, or for a port that " +
			"has a rule in KUBE-NODEPORTS, or two of its chains translate the same port.",
		Remedy:  "give the Pod another hostPort or remove it: a Service of type NodePort does not need one",
		Ref:     "https://github.com/aws/eks-node-monitoring-agent",
		Inspect: inspectHostPort,
	}
}

func inspectHostPort(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.Passing("no shared ports")
	sets, err := h.Rulesets(ctx)
	if err != nil {
		return s, err
	}
	port := regexp.MustCompile(`--dports? ([0-9,]+)`)
	ports := func(t *ruleset.Table, chain string, each func(port string, r *ruleset.Rule)) {
		for r := range t.Rules(chain) {
			for _, m := range port.FindAllStringSubmatch(r.Text, -1) {
				for p := range strings.SplitSeq(m[1], ",") {
					each(p, r)
				}
			}
		}
	}
	var got, twice []string
	found := false
	for _, t := range ruleset.Tables(sets, "nat") {
		reserved := map[string]string{"22": "SSH", "10250": "kubelet"}
		ports(t, "KUBE-NODEPORTS", func(p string, _ *ruleset.Rule) { reserved[p] = "a NodePort" })
		ports(t, "CNI-HOSTPORT-DNAT", func(p string, r *ruleset.Rule) {
			found = true
			taken := "port " + p + " of " + reserved[p]
			if reserved[p] == "" || !strings.Contains(r.Text, "-p tcp") || slices.Contains(got, taken) {
				return
			}
			s.Evidence = append(s.Evidence, checks.SeenRule(t.Source, r.Text))
			got = append(got, taken)
		})
		words, rules := sharedHostPorts(t)
		twice = append(twice, words...)
		for _, r := range rules {
			s.Evidence = append(s.Evidence, checks.SeenRule(t.Source, r))
		}
	}
	switch {
	case !found:
		s.Skip = "no Pod uses a hostPort through portmap"
	case twice != nil:
		s.Differs(strings.Join(append(got, twice...), ", "), "if the first Pod is gone, delete its rules: `iptables -t nat -D "+
			"CNI-HOSTPORT-DNAT` with the words of the first rule, then `iptables -t nat -F` and `-X` with its chain; if both Pods "+
			"run, give one another hostPort")
	case got != nil:
		s.Differs(strings.Join(got, ", "), "")
	}
	return s, nil
}

// sharedHostPorts returns the ports that two of portmap's chains translate, and the rules. The first one translates all packets.
func sharedHostPorts(t *ruleset.Table) (words, rules []string) {
	first := map[[3]string]*ruleset.Rule{} // by protocol, address of the node, and port
	for from := range t.Rules("CNI-HOSTPORT-DNAT") {
		for r := range t.Rules(from.Target) {
			key := [3]string{r.Protocol, r.Destination, r.Port}
			before := cmp.Or(first[key], first[[3]string{r.Protocol, "", r.Port}]) // a rule without an address is for all of them
			switch {
			case r.Target != "DNAT" || r.Port == "" || before != nil && before.Chain == r.Chain:
			case before == nil:
				first[key] = r
			default:
				words = append(words, "hostPort "+r.Port+"/"+r.Protocol+": "+before.To+" gets all packets, "+r.To+" none")
				rules = append(rules, before.Text, r.Text)
			}
		}
	}
	return words, rules
}
