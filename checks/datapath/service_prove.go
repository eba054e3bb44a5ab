package datapath

import (
	"context"
	"fmt"
	"strings"

	"nodegate/internal/audit"
	"nodegate/internal/host"
	"nodegate/internal/ruleset"
)

// ProveService makes one connection from the node to a Service, and a second if that fails, whose packets the kernel traces. The node is
// accused only if its own rules or routes lost a packet. What another machine may have lost is unknown, and a reply of the endpoint that
// refuses the connection proves the path.
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
		t.NameRules(sets)
	}
	return t.proof()
}

// proof judges a traced connection.
func (t *ServiceTrace) proof() (host.Proof, error) {
	p := host.Proof{Evidence: fmt.Sprintf("two connections from %s to %s; the second %s", t.From.Addr(), t.To, t.outcome())}
	proto := "tcp"
	if t.Proto == DNSUDP {
		proto = "dns"
	}
	trace := fmt.Sprintf("run `nodegate probe service %s --proto %s --trace` for the whole way", t.Address, proto)
	for what, way := range map[string]*Passage{"request": &t.Request, "reply": &t.Reply} {
		died := way.Died()
		switch {
		case t.Failed == "":
		case died != nil && died.isProxy():
			p.Skip = "kube-proxy itself rejects connections to " + t.Address + ": the Service has no endpoint that is ready"
		case died != nil:
			p.Lost, p.Remedy = fmt.Sprintf("the %s was %s", what, way.describe()), "correct or remove that rule; "+trace
			if owner := died.owner(); owner != "" {
				p.Remedy = "correct or remove that rule of " + owner + "; " + trace
			}
		case strings.HasPrefix(way.End, "lost after"):
			p.Lost, p.Remedy = fmt.Sprintf("the %s was %s", what, way.describe()), "see `ip route get` and `ip rule`; "+trace
		}
	}
	switch {
	case t.Failed == "":
		p.Pass = true
	case p.Lost != "" || p.Skip != "":
	case t.Failed == "refused" && t.Reply.End == endDelivered:
		p.Skip = t.To.String() + " refuses connections; its reply came back, so the path works"
	default:
		return p, fmt.Errorf("%s: no rule of this node dropped a packet, so the endpoint, its node or the network between may be the cause; %s",
			p.Evidence, trace)
	}
	return p, nil
}

func (t *ServiceTrace) outcome() string {
	if t.Failed == "" {
		return "succeeded"
	}
	text := "failed (" + t.Failed + "): the request " + t.Request.describe()
	if t.Reply.End != "" {
		text += ", the reply " + t.Reply.describe()
	}
	return text
}

// isProxy reports whether kube-proxy wrote the rule.
func (s *PassageStep) isProxy() bool {
	return strings.HasPrefix(s.Chain, "KUBE-") && s.Chain != "KUBE-FIREWALL" || s.Table == ruleset.KubeProxyTable
}

func (s *PassageStep) owner() string {
	return (&audit.Step{Program: "nft", Table: s.Family + " " + s.Table, Chain: s.Chain}).Owner()
}

// NameRules adds the texts of the rules.
func (t *ServiceTrace) NameRules(sets []*ruleset.Set) {
	for _, p := range []*Passage{&t.Request, &t.Reply} {
		for i := range p.Steps {
			p.Steps[i].Rule = ruleOf(sets, &p.Steps[i])
		}
	}
}

// ruleOf returns the text of a step's rule, or "" if it is not known.
func ruleOf(sets []*ruleset.Set, s *PassageStep) string {
	for _, set := range sets {
		for _, t := range append(append([]*ruleset.NFTTable{}, set.NFT...), set.Foreign...) {
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
