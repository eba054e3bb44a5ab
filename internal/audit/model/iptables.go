package model

import (
	"cmp"
	"slices"
	"strings"

	"nodegate/internal/ruleset"
)

// largeCluster is the number of endpoints above which kube-proxy omits comments and lets unused chains stay for a time.
const largeCluster = 1000

// FromRules reads the Services of iptables mode. nat and filter are nil if the table must not be read. Without
// services, only what Services share is read.
func FromRules(save *ruleset.Save, nat, filter *ruleset.Table, services bool) *Model {
	m := &Model{Save: save, NAT: nat, Filter: filter, Chains: make([]Chain, save.Chains+1), health: map[string]int{},
		byHash: map[string]*Port{}, byName: map[portName]*Port{}}
	for _, t := range save.Tables {
		for _, c := range t.Chains {
			m.Chains[c.Index].Chain = c
		}
	}
	if services {
		m.findChains()
		m.findLeft()
		m.adopt()
		m.readShared()
		m.readOwn()
		m.readEndpoints()
		m.readFilter()
		for _, p := range m.Ports {
			m.finish(p)
		}
	}
	m.fit()
	return m
}

// each calls do for the chains of table nat, in the order of the save: in the order of Services, a large save causes a cache miss for each.
func (m *Model) each(do func(*Chain)) {
	if m.NAT == nil || len(m.NAT.Chains) == 0 {
		return
	}
	first := m.NAT.Chains[0].Index
	for i := range m.NAT.Chains {
		do(&m.Chains[first+int32(i)])
	}
}

// findChains names the kinds of chains, and whether the save is of large-cluster mode.
func (m *Model) findChains() {
	endpoints := 0
	m.each(func(c *Chain) {
		if c.Kind, _ = ServiceChain(c.Name); c.Kind != "SEP" {
			return
		}
		endpoints++
		last := len(c.Rules) - 1
		m.Large = m.Large || last >= 0 && c.Rules[last].Target == "DNAT" && c.Rules[last].Comment == ""
	})
	m.Large = m.Large || endpoints > largeCluster
}

// findLeft finds unused chains in large-cluster mode. kube-proxy deletes chains without references in the first sync that begins 30 s after
// it last checked for them (syncProxyRules of pkg/proxy/iptables), which may be an hour later. They tell nothing about their Services.
func (m *Model) findLeft() {
	if !m.Large {
		return
	}
	var roots []*Chain
	m.each(func(c *Chain) {
		if c.Left = c.Kind != "" && c.Kind != "SEP"; c.Kind == "" {
			roots = append(roots, c)
		}
	})
	for len(roots) > 0 {
		c := roots[len(roots)-1]
		roots = roots[:len(roots)-1]
		for i := range c.Rules {
			if to := &m.Chains[c.Rules[i].Jump]; to.Left {
				if to.Left = false; to.Kind != "SVC" && to.Kind != "SVL" { // these lead only to endpoints
					roots = append(roots, to)
				}
			}
		}
	}
}

// adopt makes a Service of each hash in the names of chains.
func (m *Model) adopt() {
	m.each(func(c *Chain) {
		if c.Left || c.Kind == "" || c.Kind == "SEP" {
			return
		}
		_, hash := ServiceChain(c.Name)
		p := m.byHash[hash]
		if p == nil {
			p = &Port{Hash: hash}
			m.byHash[hash] = p
			m.Ports = append(m.Ports, p)
		}
		c.Port = p
		switch c.Kind {
		case "SVC":
			p.SVC = c.Chain
		case "SVL":
			p.SVL = c.Chain
		case "EXT":
			p.EXT = c.Chain
		case "FW":
			p.FW = c.Chain
		}
	})
}

// name takes the name of a Service from the comment of one of its rules. Comments are words: the hash decides whether it is the name.
func (m *Model) name(p *Port, r *ruleset.Rule) {
	if p.Named || r.Comment == "" {
		return
	}
	for word := range strings.FieldsSeq(r.Comment) {
		if !strings.Contains(word, "/") {
			continue
		}
		for _, proto := range []string{r.Protocol, "tcp", "udp", "sctp"} {
			if proto != "" && string(m.hash.Sum16(word, proto)) == p.Hash {
				p.Name, p.Protocol, p.Named = word, proto, true
				return
			}
		}
		if p.Name == "" {
			p.Name = word
		}
	}
	if p.Protocol == "" {
		p.Protocol = r.Protocol
	}
}

// ownerOf returns the Service of a rule that leads to a Service's chain. If the comment names another Service of these rules, only the
// address decides which of the two is wrong.
func (m *Model) ownerOf(r *ruleset.Rule, to *Chain) *Port {
	name, _, _ := strings.Cut(r.Comment, " ")
	hash := string(m.hash.Sum16(name, r.Protocol))
	if hash == to.Port.Hash {
		to.Port.Name, to.Port.Protocol, to.Port.Named = name, r.Protocol, true
		return to.Port
	}
	said := m.byHash[hash]
	if said == nil || slices.ContainsFunc(to.Rules, func(own ruleset.Rule) bool {
		return own.Target == "KUBE-MARK-MASQ" && own.Destination == r.Destination && own.Port == r.Port && own.Protocol == r.Protocol
	}) {
		m.name(to.Port, r)
		return to.Port
	}
	m.name(said, r)
	return said
}

// readShared reads the rules of table nat for addresses and node ports.
func (m *Model) readShared() {
	for r := range m.NAT.Rules("KUBE-SERVICES") {
		to := &m.Chains[r.Jump]
		switch {
		case r.Target == "KUBE-NODEPORTS" || strings.HasPrefix(r.Comment, "kubernetes service nodeports"):
			m.NodePortJumps = append(m.NodePortJumps, r)
		case to.Port == nil:
			m.Strangers = append(m.Strangers, r)
		default:
			m.readPortal(m.ownerOf(r, to), r, to.Kind)
		}
	}
	for r := range m.NAT.Rules("KUBE-NODEPORTS") {
		to := &m.Chains[r.Jump]
		if to.Port == nil {
			m.Strangers = append(m.Strangers, r)
			continue
		}
		p := m.ownerOf(r, to)
		p.Lines = append(p.Lines, r)
		if r.Destination == "" && p.serves == nil {
			p.Node, p.serves = r.Port, r
		} else if r.Destination != "" {
			p.Loopback = true
			p.Node = cmp.Or(p.Node, r.Port)
		}
	}
}

func (m *Model) readPortal(p *Port, r *ruleset.Rule, kind string) {
	p.Lines = append(p.Lines, r)
	switch {
	case kind != "SVC" && kind != "SVL":
		if r.Has(ruleset.ByDestination) {
			p.addOutside(Address{IP: TrimCIDR(r.Destination), Ranged: kind == "FW",
				Balancer: kind == "FW" || p.FW == nil && strings.HasSuffix(r.Comment, " loadbalancer IP")})
		}
	case p.Portal == nil:
		p.Portal, p.InternalLocal = r, kind == "SVL"
	}
}

// maxAddresses bounds the addresses that are stored of one Service.
const maxAddresses = 256

func (p *Port) addOutside(a Address) {
	if len(p.Outside) < maxAddresses && !slices.ContainsFunc(p.Outside, func(o Address) bool { return o.IP == a.IP }) {
		p.Outside = append(p.Outside, a)
	}
}

// readOwn reads the Services' own chains, and which endpoints they lead to.
func (m *Model) readOwn() {
	m.each(func(c *Chain) {
		p := c.Port
		if p == nil || c.Left {
			return
		}
		m.stamp++
		for i := range c.Rules {
			r := &c.Rules[i]
			m.name(p, r)
			to := &m.Chains[r.Jump]
			switch {
			case to.Kind == "SEP" && c.Kind != "EXT" && c.Kind != "FW":
				m.readDispatch(p, c, to, r)
			case c.Kind == "EXT":
				p.ExternalLocal = p.ExternalLocal || r.Has(ruleset.FromLocal) || to.Kind == "SVL"
			case c.Kind == "FW" && r.Target != "":
				p.Ranges = append(p.Ranges, r.Source)
			case r.Target == "KUBE-MARK-MASQ" && r.Has(ruleset.ByDestination|ruleset.ByPort) && p.witness == nil:
				p.witness, p.detector = r, DetectorOf(r)
			}
		}
	})
	for _, p := range m.Ports {
		for _, c := range []*ruleset.Chain{p.SVC, p.SVL} {
			if c != nil && !p.Named { // without other comments, as in large-cluster mode
				for i := range c.Rules {
					for k := range m.Chains[c.Rules[i].Jump].rules() {
						m.name(p, k)
					}
				}
			}
		}
	}
}

func (c *Chain) rules() func(func(*ruleset.Rule) bool) {
	return func(yield func(*ruleset.Rule) bool) {
		if c.Kind != "SEP" {
			return
		}
		for i := range c.Rules {
			if !yield(&c.Rules[i]) {
				return
			}
		}
	}
}

func (m *Model) readDispatch(p *Port, c, to *Chain, r *ruleset.Rule) {
	if r.Has(ruleset.ByRecent) && p.Affinity == 0 {
		p.Affinity = r.Extra().Seconds
	}
	if to.stamp == m.stamp {
		return
	}
	to.stamp = m.stamp
	list := &p.Endpoints
	if c.Kind == "SVL" {
		list = &p.LocalEndpoints
	}
	if *list == nil {
		*list = make([]Endpoint, 0, len(c.Rules))
	}
	*list = append(*list, Endpoint{Index: r.Jump, Chain: r.Target, Line: int(r.Line)})
	switch {
	case to.Port == nil:
		to.Port = p
	case to.Port != p:
		m.rivals = append(m.rivals, rival{r.Jump, p})
	}
}

// readEndpoints reads the addresses of endpoints.
func (m *Model) readEndpoints() {
	m.each(func(c *Chain) {
		if c.Kind == "SEP" && c.Port != nil {
			m.readEndpoint(c)
		}
	})
	for _, r := range m.rivals {
		if c := &m.Chains[r.chain]; !c.Named && m.hashes(c, r.port, c.Address) {
			c.Port, c.Named = r.port, true
		}
	}
}

func (m *Model) readEndpoint(c *Chain) {
	var hairpin *ruleset.Rule
	for i := range c.Rules {
		r := &c.Rules[i]
		if r.Target == "DNAT" && c.Translate == nil {
			c.Translate = r
		} else if r.Target == "KUBE-MARK-MASQ" && hairpin == nil {
			hairpin = r
		}
	}
	if c.Translate == nil {
		c.Named = true
		return
	}
	if c.Translate.Has(ruleset.Unprintable) {
		c.Named = true
		if m.Unreadable++; m.FirstUnread == nil {
			m.FirstUnread = c.Translate
		}
		return
	}
	c.Address, c.To = c.Translate.To, c.Translate.To
	if c.Named = !c.Port.Named || m.hashes(c, c.Port, c.Address); c.Named || hairpin == nil {
		return
	}
	_, port := SplitAddress(c.Address)
	ip := TrimCIDR(hairpin.Source)
	if strings.Contains(ip, ":") {
		ip = "[" + ip + "]"
	}
	if ip+":"+port == c.Address {
		m.Replaced = append(m.Replaced, c.Translate)
	}
	if m.hashes(c, c.Port, ip+":"+port) {
		c.Address, c.Named = ip+":"+port, true
	}
}

func (m *Model) hashes(c *Chain, p *Port, address string) bool {
	_, hash := ServiceChain(c.Name)
	return string(m.hash.Sum16(p.Name, p.Protocol, address)) == hash
}

// EndpointChain returns the name that the chain of an endpoint must have.
func (m *Model) EndpointChain(p *Port, e Endpoint) string {
	c := &m.Chains[e.Index]
	if c.Port == p && c.Named || !p.Named {
		return e.Chain
	}
	return "KUBE-SEP-" + string(m.hash.Sum16(p.Name, p.Protocol, c.Address))
}
