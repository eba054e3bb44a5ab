package model

import (
	"cmp"
	"slices"
	"strings"

	"nodegate/internal/ruleset"
)

// readFilter reads the rules of table filter for Services without endpoints and for source ranges.
func (m *Model) readFilter() {
	ranged := map[[2]string]*Port{}
	for _, p := range m.Ports {
		if _, ok := m.byName[portName{p.Name, p.Protocol}]; !ok && p.Name != "" {
			m.byName[portName{p.Name, p.Protocol}] = p
		}
		for _, r := range p.Lines {
			if r.Has(ruleset.ByDestination) && m.Chains[r.Chain].Name == "KUBE-SERVICES" {
				ranged[[2]string{r.Destination, r.Port}] = p
			}
		}
	}
	for _, name := range []string{"KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES"} {
		for r := range m.Filter.Rules(name) {
			service, what := SplitPortal(r.Comment)
			if !strings.HasPrefix(what, "has no") {
				m.Strangers = append(m.Strangers, r)
				continue
			}
			p := m.named(service, r.Protocol)
			if p.Lines == nil && what == "has no endpoints" { // its chains are left over
				p.SVC, p.SVL, p.EXT, p.FW, p.Endpoints, p.LocalEndpoints, p.witness = nil, nil, nil, nil, nil, nil, nil
			}
			p.Lines = append(p.Lines, r)
			if name == "KUBE-SERVICES" {
				continue
			}
			p.ExternalLocal = p.ExternalLocal || p.EXT == nil && what == "has no local endpoints"
			if r.Destination != "" {
				p.addOutside(Address{IP: TrimCIDR(r.Destination), Blocked: true})
			} else {
				p.Node = cmp.Or(p.Node, r.Port)
			}
		}
	}
	for r := range m.Filter.Rules("KUBE-PROXY-FIREWALL") {
		p := ranged[[2]string{r.Destination, r.Port}]
		if name, _, ok := strings.Cut(r.Comment, " traffic not accepted by "); p == nil && ok {
			p = m.named(name, r.Protocol)
		}
		if p == nil {
			m.Strangers = append(m.Strangers, r)
			continue
		}
		p.Lines = append(p.Lines, r)
	}
	for r := range m.Filter.Rules("KUBE-NODEPORTS") {
		service, health := strings.CutSuffix(r.Comment, " health check node port")
		if !health || r.Target != "ACCEPT" || r.Protocol != "tcp" || r.Conditions() != ruleset.ByProtocol|ruleset.ByPort {
			m.Strangers = append(m.Strangers, r)
			continue
		}
		m.health[service] = atoi(r.Port)
	}
}

// named returns the Service of that name. A damaged rule may have lost its protocol.
func (m *Model) named(name, protocol string) *Port {
	for _, proto := range []string{protocol, "tcp", "udp", "sctp"} {
		if p := m.byName[portName{name, proto}]; p != nil {
			return p
		}
	}
	p := &Port{Service: Service{Name: name, Protocol: protocol}}
	m.byName[portName{name, protocol}] = p
	m.Ports = append(m.Ports, p)
	return p
}

// finish decides from all rules of a Service.
func (m *Model) finish(p *Port) {
	for _, r := range []*ruleset.Rule{p.Portal, p.witness} {
		if r != nil && p.ClusterIP == "" && r.Has(ruleset.ByDestination|ruleset.ByPort) && !r.Has(ruleset.NotDestination) {
			p.ClusterIP, p.Number = TrimCIDR(r.Destination), r.Port
			if p.Portal == nil {
				p.InternalLocal = p.SVL != nil && r.Chain == p.SVL.Index
			}
		}
	}
	if p.EXT != nil && len(p.EXT.Rules) == 0 {
		p.ExternalLocal = p.SVL != nil && !p.InternalLocal
	}
	slices.Sort(p.Ranges)
	p.Ranges = slices.Compact(p.Ranges)
	records, endpoints := 0, len(p.Endpoints)+len(p.LocalEndpoints)
	if p.Affinity == 0 {
		for _, e := range slices.Concat(p.Endpoints, p.LocalEndpoints) {
			if r := m.Chains[e.Index].Translate; r != nil && r.Has(ruleset.RecentSet) {
				records++
			}
		}
	}
	if p.Affinity == 0 && records > 0 && 2*records >= endpoints {
		p.Affinity = -1
	}
	m.complete(p)
}

// complete sets the fields of the report from the Service that was read.
func (m *Model) complete(p *Port) {
	for _, r := range p.Lines { // without endpoints, only table filter has the ClusterIP
		if p.Portal == nil && p.witness == nil && m.Filter.Chain("KUBE-SERVICES") == m.Chains[r.Chain].Chain {
			p.Blocked, p.InternalLocal = strings.ToLower(r.Target), r.Target == "DROP"
			p.ClusterIP, p.Number = TrimCIDR(r.Destination), r.Port
		}
	}
	p.Family, p.Port, p.NodePort, p.AffinitySeconds = m.Save.Family, atoi(p.Number), atoi(p.Node), int(max(0, p.Affinity))
	p.Health = m.health[p.Name]
	for _, a := range p.Outside {
		if a.Balancer {
			p.LoadBalancerIPs = append(p.LoadBalancerIPs, a.IP)
		} else {
			p.ExternalIPs = append(p.ExternalIPs, a.IP)
		}
	}
	for i := 0; m.Filter != nil && i < len(p.Ranges); i++ {
		p.SourceRanges = append(p.SourceRanges, cmp.Or(p.Ranges[i], map[string]string{ruleset.IPv4: "0.0.0.0/0", ruleset.IPv6: "::/0"}[p.Family]))
	}
	for _, c := range []*ruleset.Chain{p.FW, p.EXT, p.SVC, p.SVL} {
		if c != nil {
			p.Chains = append(p.Chains, c.Name)
		}
	}
	for _, list := range [][]Endpoint{p.Endpoints, p.LocalEndpoints} {
		for i := range list {
			list[i].Address, list[i].Chance = m.Chains[list[i].Index].To, 1/float64(len(list))
		}
	}
}

// fit votes on the parameters.
func (m *Model) fit() {
	detectors, pods := map[Detector]int{}, map[Detector]int{}
	loopback, ports := 0, 0
	for _, p := range m.Ports {
		if p.witness != nil {
			detectors[p.detector]++
		}
		if p.serves != nil {
			ports++
		}
		if p.Loopback {
			loopback++
		}
		for i := 0; p.EXT != nil && i < len(p.EXT.Rules); i++ {
			r := &p.EXT.Rules[i]
			if d := DetectorOf(r); d.Flags != 0 && r.Target != "KUBE-MARK-MASQ" {
				pods[d]++
			}
		}
	}
	m.Loopback = 2*loopback >= ports && loopback > 0
	if len(detectors) > 0 {
		d := mostFrequent(detectors)
		m.Masquerade = &d
		m.Pods = Detector{Flags: d.Flags &^ (ruleset.NotSource | ruleset.NotInterface), Source: d.Source, In: d.In}
	}
	if m.Pods.Flags == 0 && len(pods) > 0 {
		m.Pods = mostFrequent(pods)
	}
	bits := map[uint64]int{}
	vote := func(mark string) {
		if bit, _, ok := MarkMask(mark); ok && bit != 0 && bit&(bit-1) == 0 {
			bits[bit]++
		}
	}
	for _, name := range []string{"KUBE-MARK-MASQ", "KUBE-POSTROUTING"} {
		for r := range m.NAT.Rules(name) {
			vote(r.Extra().SetMark)
			vote(r.Extra().Mark)
		}
	}
	for r := range m.Filter.Rules("KUBE-FORWARD") {
		vote(r.Extra().Mark)
	}
	m.Bit = 0x4000
	if len(bits) > 0 {
		m.Bit = mostFrequent(bits)
	}
}

// mostFrequent returns the key with the highest count, the same one for the same counts.
func mostFrequent[K comparable](counts map[K]int) (most K) {
	n, text := 0, ""
	for k, c := range counts {
		if t := textOf(k); c > n || c == n && t < text {
			most, n, text = k, c, t
		}
	}
	return most
}
