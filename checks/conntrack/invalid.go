package conntrack

import (
	"context"
	"errors"
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

// conntrackInvalid detects that INVALID packets pass: they are not translated back and reset the connection.
func conntrackInvalid() checks.Problem {
	return checks.Problem{
		Name: "conntrack.invalid", Stages: []checks.Stage{checks.Run}, Severity: policy.Block, Moves: true,
		Detects: "Nothing stops packets that conntrack classifies as INVALID: neither kube-proxy's rule nor " +
			"nf_conntrack_tcp_be_liberal.",
		Symptom: "Long or busy connections through a Service break with \"connection reset by peer\": a late " +
			"packet leaves untranslated, and the other side answers with RST.",
		How: "net.netfilter.nf_conntrack_tcp_be_liberal is 0, and filter KUBE-FORWARD lacks the DROP of " +
			"INVALID before its ACCEPTs (kube-proxy writes it since 1.15, but not in IPVS and nftables mode), or " +
			"FORWARD accepts every packet before that chain.",
		Remedy:   "set net.netfilter.nf_conntrack_tcp_be_liberal=1, or restart kube-proxy in iptables mode, which writes the rule",
		TradeOff: "The DROP breaks asymmetric routing (kubernetes#94861); be_liberal does not, but lets packets outside the TCP window through.",
		Ref:      "https://github.com/kubernetes/kubernetes/pull/74840",
		Inspect:  inspectConntrackInvalid,
	}
}

func inspectConntrackInvalid(ctx context.Context, h *host.Host, _ *policy.Policy) (checks.State, error) {
	s := checks.State{Want: "be_liberal=1, or INVALID dropped"}
	liberal, evidence, err := readBeLiberal(h)
	if err != nil {
		return skipIfNotLoaded(s, err)
	}
	s.Evidence = []checks.Evidence{evidence}
	if liberal {
		s.Got, s.Pass = "be_liberal=1", true
		return s, nil
	}
	rep, err := noderules.Read(ctx, h, audit.Options{BeLiberal: &liberal})
	if err != nil {
		return s, err
	}
	s.Remedy = "run `sysctl -w net.netfilter.nf_conntrack_tcp_be_liberal=1` and add the sysctl to the policy"
	findings := rep.About("kubeproxy.forward.invalid", "KUBE-FORWARD")
	switch lost, isLost := rep.Lost("filter"); {
	case rep.Mode == "":
		s.Skip = noderules.None
	case rep.Mode != "iptables":
		s.Got, s.Cause, s.Minor = "be_liberal=0, "+rep.Mode+" mode drops none", beLiberalSysctl, true
	case isLost:
		return s, fmt.Errorf("cannot read KUBE-FORWARD: %s", lost.Message)
	default:
		for _, f := range findings {
			switch f.Name {
			case "kubeproxy.forward.invalid-drop":
				s.Got, s.Cause = "be_liberal=0, no DROP of INVALID", "conntrack.be-liberal-changed"
			case "kubeproxy.chain.damaged":
				if !acceptsFirst(rep) {
					return s, fmt.Errorf("cannot judge KUBE-FORWARD: %s: %s", f.Message, f.Rule)
				}
				s.Got, s.Cause = "be_liberal=0, DROP of INVALID after an ACCEPT", beLiberalSysctl
			default:
				continue
			}
			s.Evidence = append(s.Evidence, rep.Evidence(f))
			return s, nil
		}
		return s, judgeForward(&s, rep)
	}
	return s, nil
}

// acceptsFirst reports whether a rule accepts INVALID packets before the rule that drops them.
func acceptsFirst(rep noderules.Rules) bool {
	return slices.ContainsFunc(rep.Filters, func(t *ruleset.Table) bool {
		drop, accept := audit.InvalidDrop(t)
		return drop != nil && accept != nil
	})
}

// judgeForward checks that the chain and its rules exist: without KUBE-FORWARD there are no findings about it either.
func judgeForward(s *checks.State, rep noderules.Rules) error {
	for _, f := range rep.About("kubeproxy.jump.missing") {
		if f.Table == "filter" && strings.Contains(f.Message, "KUBE-FORWARD") {
			s.Got, s.Cause = "be_liberal=0, KUBE-FORWARD not reached", beLiberalSysctl
			s.Evidence = append(s.Evidence, rep.Evidence(f))
			return nil
		}
	}
	if len(rep.Filters) == 0 {
		return errors.New("cannot read table filter: iptables-save does not print KUBE-FORWARD")
	}
	for _, t := range rep.Filters {
		for r := range t.Rules("FORWARD") {
			if r.Target == "KUBE-FORWARD" {
				break
			}
			if r.Target == "ACCEPT" && r.Always() {
				s.Got, s.Cause = "be_liberal=0, KUBE-FORWARD not reached", beLiberalSysctl
				s.Evidence = append(s.Evidence, checks.Seen(t.Source, r.Text+": accepts every packet before KUBE-FORWARD"))
				return nil
			}
		}
		drop, accept := audit.InvalidDrop(t)
		if drop == nil || accept != nil {
			return fmt.Errorf("%s: table filter has kube-proxy's chains, but KUBE-FORWARD lacks the DROP of INVALID", t.Source)
		}
		s.Evidence = append(s.Evidence, checks.SeenRule(t.Source, drop.Text))
	}
	s.Got, s.Pass = "INVALID dropped", true
	return nil
}
