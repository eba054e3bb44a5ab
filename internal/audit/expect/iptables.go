package expect

import (
	"fmt"
	"strings"

	"nodegate/internal/audit/model"
	"nodegate/internal/ruleset"
)

// The functions of this file return kube-proxy's rules in iptables mode from 1.25 on (syncProxyRules of pkg/proxy/iptables).

const markMasq = "KUBE-MARK-MASQ"

// masqueraded is a rule with the detector's conditions.
func masqueraded(d model.Detector, r Rule) Rule {
	r.Flags |= d.Flags
	r.Source, r.In = d.Source, d.In
	return r
}

func nameOf(c *ruleset.Chain, kind string, p *model.Port) string {
	if c != nil {
		return c.Name
	}
	return "KUBE-" + kind + "-" + p.Hash
}

// Masquerading returns the rules of KUBE-MARK-MASQ or KUBE-POSTROUTING.
func (s *Sheet) Masquerading(m *model.Model, chain string, randomFully bool) {
	bit := fmt.Sprintf("%#x", m.Bit)
	if chain == markMasq {
		s.add(Rule{Target: "MARK", SetMark: bit + "/" + bit})
		return
	}
	s.add(Rule{Flags: ruleset.NotMark, Mark: bit + "/" + bit, Target: "RETURN"})
	s.add(Rule{Target: "MARK", SetMark: bit + "/0x0"})
	r := Rule{Target: "MASQUERADE"}
	if randomFully {
		r.Flags = ruleset.RandomFully
	}
	s.add(r)
}

// Forward returns the rules of KUBE-FORWARD in table filter.
func (s *Sheet) Forward(m *model.Model, dropsInvalid bool) {
	bit := fmt.Sprintf("%#x", m.Bit)
	if dropsInvalid {
		s.add(Rule{States: "INVALID", Target: "DROP"})
	}
	s.add(Rule{Mark: bit + "/" + bit, Target: "ACCEPT"})
	s.add(Rule{States: "RELATED,ESTABLISHED", Target: "ACCEPT"})
}

// Shared returns the rules of a Service in the chains of its addresses and node ports.
func (s *Sheet) Shared(m *model.Model, p *model.Port) {
	portals, nodePorts := m.Chain(m.NAT, "KUBE-SERVICES"), m.Chain(m.NAT, "KUBE-NODEPORTS")
	external := nameOf(p.EXT, "EXT", p)
	number := p.Number
	if p.Served() && portals != nil {
		to := nameOf(p.SVC, "SVC", p)
		if p.InternalLocal {
			to = nameOf(p.SVL, "SVL", p)
		}
		s.add(Rule{Chain: portals.Index, Destination: p.ClusterIP, Protocol: p.Protocol, Port: p.Number, Target: to})
	}
	firewall := m.Chain(m.Filter, "KUBE-PROXY-FIREWALL")
	for _, r := range p.Lines { // the port of a Service without a known ClusterIP
		if number == "" && m.Chains[r.Chain].Name != "KUBE-NODEPORTS" && r.Destination != "" {
			number = r.Port
		}
	}
	if p.EXT != nil {
		for _, a := range p.Outside {
			r := Rule{Destination: a.IP, Protocol: p.Protocol, Port: number, Target: external}
			if a.Ranged {
				r.Target = nameOf(p.FW, "FW", p)
			}
			if portals != nil {
				r.Chain = portals.Index
				s.add(r)
			}
			if a.Ranged && firewall != nil {
				r.Chain, r.Target = firewall.Index, "DROP"
				s.add(r)
			}
		}
		if p.Node != "" && nodePorts != nil {
			r := Rule{Chain: nodePorts.Index, Protocol: p.Protocol, Port: p.Node, Target: external}
			s.add(r)
			if m.Loopback {
				r.Destination = "127.0.0.0/8"
				s.add(r)
			}
		}
	}
	s.blocked(m, p, number)
}

// blocked returns the rules of table filter for a Service without endpoints, or without endpoints on this node.
func (s *Sheet) blocked(m *model.Model, p *model.Port, number string) {
	portals, outside := m.Chain(m.Filter, "KUBE-SERVICES"), m.Chain(m.Filter, "KUBE-EXTERNAL-SERVICES")
	if outside != nil && p.EXT != nil && p.ExternalLocal && len(p.LocalEndpoints) == 0 {
		for _, a := range p.Outside {
			s.add(Rule{Chain: outside.Index, Destination: a.IP, Protocol: p.Protocol, Port: number, Target: "DROP"})
		}
		if p.Node != "" {
			s.add(Rule{Chain: outside.Index, Flags: ruleset.ToLocal, Protocol: p.Protocol, Port: p.Node, Target: "DROP"})
		}
	}
	seen := map[Rule]bool{}
	for _, r := range p.Lines { // only these rules show the Service, so each is its own witness
		cluster := portals != nil && r.Chain == portals.Index && p.Blocked != ""
		key := Rule{Chain: r.Chain, Destination: r.Destination, Port: r.Port}
		if !cluster && (outside == nil || r.Chain != outside.Index || p.EXT != nil) || seen[key] {
			continue
		}
		seen[key] = true
		w := Rule{Chain: r.Chain, Destination: r.Destination, Protocol: p.Protocol, Port: r.Port, Target: "REJECT"}
		if strings.HasSuffix(r.Comment, "no local endpoints") {
			w.Target = "DROP"
		}
		switch {
		case w.Destination != "" && number != "":
			w.Port = number
		case w.Destination == "" && !cluster:
			w.Flags = ruleset.ToLocal
		}
		s.add(w)
	}
}

// Policy returns the rules of a SVC chain, or of a SVL chain for endpoints on this node.
func (s *Sheet) Policy(m *model.Model, p *model.Port, local bool) {
	if m.Masquerade != nil && p.Served() && p.InternalLocal == local {
		s.add(masqueraded(*m.Masquerade,
			Rule{Destination: p.ClusterIP, Protocol: p.Protocol, Port: p.Number, Target: markMasq}))
	}
	endpoints := p.Endpoints
	if local {
		endpoints = p.LocalEndpoints
	}
	for _, e := range endpoints {
		if p.Affinity != 0 {
			name := m.EndpointChain(p, e)
			s.add(Rule{Seconds: p.Affinity, Recent: name, Target: name})
		}
	}
	for i, e := range endpoints {
		r := Rule{Target: m.EndpointChain(p, e)}
		if left := len(endpoints) - i; left > 1 {
			r.Chance = 1 / float64(left)
		}
		s.add(r)
	}
	if len(endpoints) == 0 {
		s.add(Rule{Target: "KUBE-SEP-..."})
	}
}

// External returns the rules of an EXT chain.
func (s *Sheet) External(m *model.Model, p *model.Port) {
	all := nameOf(p.SVC, "SVC", p)
	if !p.ExternalLocal {
		s.add(Rule{Target: markMasq})
		s.add(Rule{Target: all})
		return
	}
	if m.Pods.Flags != 0 {
		s.add(masqueraded(m.Pods, Rule{Target: all}))
	}
	s.add(Rule{Flags: ruleset.FromLocal, Target: markMasq})
	s.add(Rule{Flags: ruleset.FromLocal, Target: all})
	if len(p.LocalEndpoints) > 0 {
		s.add(Rule{Target: nameOf(p.SVL, "SVL", p)})
	}
}

// Firewall returns the rules of a FW chain: the sources that may use a load balancer's addresses. The rule without a target is a comment.
func (s *Sheet) Firewall(p *model.Port) {
	for _, source := range p.Ranges {
		s.add(Rule{Source: source, Target: nameOf(p.EXT, "EXT", p)})
	}
	if len(p.FW.Rules) == 0 {
		s.add(Rule{Source: "...", Target: nameOf(p.EXT, "EXT", p)})
	}
}

// Endpoint returns the rules of a SEP chain.
func (s *Sheet) Endpoint(p *model.Port, c *model.Chain) {
	ip, _ := model.SplitAddress(c.Address)
	if ip == "" && len(c.Rules) > 0 {
		ip = c.Rules[0].Source // the address is not known
	}
	s.add(Rule{Source: ip, Target: markMasq})
	r := Rule{Protocol: p.Protocol, Target: "DNAT", To: c.Address}
	if p.Affinity != 0 {
		r.Flags, r.Recent = ruleset.RecentSet, c.Name
	}
	s.add(r)
}
