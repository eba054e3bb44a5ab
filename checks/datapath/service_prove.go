package datapath

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"nodegate/internal/audit"
	"nodegate/internal/host"
	"nodegate/internal/host/replica"
	"nodegate/internal/ruleset"
)

// ProveService makes one connection from the node to a Service, and a second if that fails, whose packets the kernel traces. The node is
// accused only if a rule or route of this node lost a packet, and no NetworkPolicy may want that. Every other failure is an error: the
// endpoint, its node, the network between or a Service without endpoints may be the cause.
func ProveService(ctx context.Context, h *host.Host, addr string, o ServiceOptions) (host.Proof, error) {
	o.N = 1
	r, err := Service(ctx, addr, o)
	if err != nil {
		return host.Proof{}, err
	}
	if r.Failed == 0 {
		return host.Proof{Pass: true, Evidence: fmt.Sprintf("%s answered after %s", r.Target, r.Latency.Max)}, nil
	}
	t, err := TraceService(ctx, addr, o)
	if err != nil {
		return host.Proof{}, fmt.Errorf("a connection to %s failed; the second one: %w", addr, err)
	}
	if sets, err := h.Rulesets(ctx); err == nil {
		t.NameRules(ctx, sets)
	}
	return t.proof()
}

// proof judges a traced connection.
func (t *ServiceTrace) proof() (host.Proof, error) {
	if t.Failed == "" {
		return host.Proof{Pass: true, Evidence: fmt.Sprintf("the second of two connections to %s succeeded", t.To)}, nil
	}
	what, way := "request", &t.Request
	seen := fmt.Sprintf("two connections from %s to %s failed (%s): the request %s", t.From.Addr(), t.To, t.Failed, way.describe())
	if t.Reply.End != "" {
		seen += ", the reply " + t.Reply.describe()
	}
	proto, _, _ := strings.Cut(string(t.Proto), "-")
	trace := fmt.Sprintf("; run `nodegate probe service %s --proto %s --trace` for the whole way", t.Address, proto)
	if way.Died() == nil && !way.isUnrouted() {
		what, way = "reply", &t.Reply
	}
	lost := host.Proof{Lost: fmt.Sprintf("the %s was %s", what, way.describe()), Evidence: seen}
	why := "no rule of this node dropped a packet, so the endpoint, its node or the network between may be the cause"
	switch died := way.Died(); {
	case died != nil && died.isPolicy():
		why = "a NetworkPolicy that " + died.owner() + " enforces may forbid it"
	case died != nil && died.isProxy():
		why = "the rule is kube-proxy's: no endpoint of the Service is ready, or the rules are stale (`nodegate audit`)"
	case died != nil:
		lost.Remedy = strings.TrimSuffix("correct or remove that rule of "+died.owner(), " of ") + trace
		return lost, nil
	case way.isUnrouted():
		lost.Remedy = "correct the routes, which `ip rule` and `ip route` print" + trace
		return lost, nil
	case t.Failed == "refused" && t.Reply.End == endDelivered:
		why = "the reply came back: the endpoint does not listen, or another machine rejects the connection"
	}
	return host.Proof{}, fmt.Errorf("%s: %s%s", seen, why, trace)
}

// isUnrouted reports whether the routing decision lost the packet.
func (p *Passage) isUnrouted() bool {
	return p.End == "lost after prerouting" || p.End == "lost after output"
}

// isProxy reports whether kube-proxy wrote the rule. KUBE-FIREWALL is kubelet's.
func (s *PassageStep) isProxy() bool {
	return s.owner() == "kube-proxy or kubelet" && s.Chain != "KUBE-FIREWALL" || s.Table == ruleset.KubeProxyTable
}

// isPolicy reports whether the rule belongs to a program that enforces NetworkPolicies.
func (s *PassageStep) isPolicy() bool {
	return slices.Contains([]string{"Calico", "Cilium", "Antrea", "OVN-Kubernetes", "kube-router", "kube-network-policies", "kindnet",
		"Weave Net", "Amazon VPC CNI"}, s.owner())
}

func (s *PassageStep) owner() string {
	return audit.Owner(s.Table, s.Chain)
}

// NameRules adds the texts of the rules. nft prints those of other programs' tables.
func (t *ServiceTrace) NameRules(ctx context.Context, sets []*ruleset.Set) {
	for _, p := range []*Passage{&t.Request, &t.Reply} {
		for i := range p.Steps {
			s := &p.Steps[i]
			if s.Rule = ruleOf(sets, s); s.Rule == "" && s.Handle != 0 {
				s.Rule = (&replica.Part{Kind: replica.PartRule, Family: s.family, Table: s.Table, Chain: s.Chain, Handle: s.Handle}).Words(ctx)
			}
		}
	}
}

// ruleOf returns the text of a step's rule, or "" if it is not known.
func ruleOf(sets []*ruleset.Set, s *PassageStep) string {
	for _, set := range sets {
		for _, t := range set.NFT {
			if t.Family != s.Family || t.Name != s.Table {
				continue
			}
			if c := t.Chain(s.Chain); c != nil {
				for _, r := range c.Rules {
					if uint64(r.Handle) == s.Handle {
						return r.Text
					}
				}
			}
		}
		for _, save := range set.Saves {
			if t := save.Table(s.Table); t != nil && save.Family == s.Family && save.Backend == ruleset.NFT {
				if c := t.Chain(s.Chain); c != nil && s.Position > 0 && s.Position <= len(c.Rules) {
					return c.Rules[s.Position-1].Text
				}
			}
		}
	}
	return ""
}
