package model

import (
	"cmp"
	"net"
	"regexp"
	"strings"

	"nodegate/internal/ruleset"
)

// NFT is a table kube-proxy of nftables mode: its Services and the settings that the rules show.
type NFT struct {
	*ruleset.NFTTable
	Ports       []*NFTPort
	Bit         string // of the mark for masquerading
	Masquerades bool   // some connections to ClusterIPs are masqueraded, those with these conditions:
	Masquerade  string // "ip saddr != 10.244.0.0/16 "; "" for all
	Pods        string // the conditions of connections from Pods; "" if kube-proxy does not know them
	Unused      string // the ranges of Services, whose unused addresses are dropped; "" if not known
	Listed      bool   // node ports are served at the addresses of set nodeport-ips
	ByPort      bool   // until 1.33: the rules that masquerade match the port
	Single      int    // rules without a choice, for Services with one endpoint and without affinity
	Choices     int    // rules with a choice for such Services

	byBase     map[string]*NFTPort
	clusterIPs map[string]bool
	hash       Hasher
	words      struct{ rule, bit *regexp.Regexp }
}

// NFTPort is one port of a Service.
type NFTPort struct {
	Service                               // what the table shows of it
	Base                           string // ns/name/tcp/port
	All, Local, External, Firewall *ruleset.NFTChain

	Number, Node string // Port and NodePort as elements have them; "" if none has it
	Marked       string // the address whose connections a rule of All or Local marks
	Outside      []NFTAddress
	Serves       bool   // it has endpoints on some node
	Reached      bool   // an element names it
	Ranges       string // the sources that Firewall admits, as its rule names them
	Affinity     bool
	tail         string
}

// NFTAddress is an address for external traffic.
type NFTAddress struct {
	IP, Number string
	Ranged     bool
}

// LongestComment bounds a comment of nftables in bytes. kube-proxy truncates names to it (truncateNFTablesComment of
// pkg/proxy/nftables/proxier.go).
const LongestComment = 128

// NFTServiceChain splits "service-2QRHZV4L-default/kubernetes/tcp/https" into "service" and "default/kubernetes/tcp/https".
func NFTServiceChain(chain string) (kind, base string) {
	for _, kind := range [...]string{"service", "local", "external", "firewall", "endpoint"} {
		rest, ok := strings.CutPrefix(chain, kind)
		if ok && len(rest) > 10 && rest[0] == '-' && rest[9] == '-' && strings.Contains(rest, "/") {
			return kind, rest[10:]
		}
	}
	return "", ""
}

// AffinitySet returns the set of the clients of an endpoint's chain.
func AffinitySet(endpoint string) string {
	return "affinity-" + strings.TrimPrefix(endpoint, "endpoint-")
}

// Chain returns the name of the Service's chain of a kind.
func (p *NFTPort) Chain(kind string) string { return kind + "-" + p.tail }

// FromNFT reads the Services of a table and fits the settings.
func FromNFT(t *ruleset.NFTTable) *NFT {
	m := &NFT{NFTTable: t, byBase: map[string]*NFTPort{}, clusterIPs: map[string]bool{}}
	m.words.bit = regexp.MustCompile(`meta mark [&|^] (\d+)`)
	m.words.rule = regexp.MustCompile(`^(?:ip6? daddr (\S+) (\w+ dport \d+ )?)?((?:ip6? saddr|meta iif\w*) (!= )?[^@\s]\S* )?` +
		`(jump mark-for-masquerade|meta mark set|goto service-)`)
	for _, c := range t.Chains {
		kind, base := NFTServiceChain(c.Name)
		if kind == "" || kind == "endpoint" {
			continue
		}
		p := m.Port(base)
		if p == nil {
			continue
		}
		p.tail = c.Name[len(kind)+1:]
		switch kind {
		case "service":
			p.All = c
		case "local":
			p.Local = c
		case "external":
			p.External = c
		case "firewall":
			p.Firewall = c
		}
		p.Serves = p.Serves || kind != "firewall" && len(c.Rules) > 0
	}
	m.readElements()
	for _, p := range m.Ports {
		m.readChains(p)
		p.complete()
	}
	m.fit()
	return m
}

// Port returns the Service of the base of a chain's name, or nil if the chain belongs to none.
func (m *NFT) Port(base string) *NFTPort {
	if p := m.byBase[base]; p != nil {
		return p
	}
	parts := strings.Split(base, "/")
	if len(parts) != 4 {
		return nil
	}
	p := &NFTPort{Service: Service{Name: parts[0] + "/" + parts[1], Protocol: parts[2], Family: m.Family}, Base: base}
	if parts[3] != "" {
		p.Name += ":" + parts[3]
	}
	p.tail = string(m.hash.Sum16(base)[:8]) + "-" + base
	m.byBase[base] = p
	m.Ports = append(m.Ports, p)
	return p
}

// Elements returns the elements of a set or map, and none if the table lacks it.
func (m *NFT) Elements(set string) []ruleset.NFTElement {
	if s := m.Sets[set]; s != nil {
		return s.Elements
	}
	return nil
}

// Owner returns the Service of an element of a map: it has a chain, or else its name is the comment. A truncated comment names none.
func (m *NFT) Owner(e *ruleset.NFTElement) (p *NFTPort, kind string) {
	kind, base := NFTServiceChain(e.Target)
	name, port, _ := strings.Cut(e.Comment, ":")
	if kind == "" && strings.Contains(name, "/") && len(e.Comment) < LongestComment && len(e.Key) > 1 {
		base = name + "/" + e.Key[len(e.Key)-2] + "/" + port
	}
	if base == "" {
		return nil, kind
	}
	return m.Port(base), kind
}

// readElements reads the addresses and node ports. The first element for a ClusterIP or a node port counts.
func (m *NFT) readElements() {
	for _, e := range m.Elements("cluster-ips") {
		m.clusterIPs[e.String()] = true
	}
	for _, set := range [...]string{"service-ips", "service-nodeports", "no-endpoint-services", "no-endpoint-nodeports", "firewall-ips"} {
		for i := range m.Elements(set) {
			e := &m.Sets[set].Elements[i]
			p, kind := m.Owner(e)
			if p == nil || len(e.Key) < 2 || e.Key[len(e.Key)-2] != p.Protocol {
				continue
			}
			p.Reached = true
			number := e.Key[len(e.Key)-1]
			p.Serves = p.Serves || strings.HasPrefix(set, "service-") || e.Verdict == "drop"
			switch {
			case len(e.Key) == 2:
				p.Node = cmp.Or(p.Node, number)
				p.ExternalLocal = p.ExternalLocal || e.Verdict == "drop"
			case kind == "service" || kind == "local", kind == "" && (m.clusterIPs[e.Key[0]] || m.Sets["cluster-ips"] == nil):
				if p.ClusterIP == "" {
					p.ClusterIP, p.Number = e.Key[0], number
					if kind == "" {
						p.Blocked = cmp.Or(e.Verdict, "reject")
					}
					p.InternalLocal = kind == "local" || e.Verdict == "drop"
				}
			case kind == "external" || kind == "firewall" || kind == "":
				p.addOutside(NFTAddress{e.Key[0], number, kind == "firewall"})
				p.ExternalLocal = p.ExternalLocal || e.Verdict == "drop"
			}
		}
	}
}

func (p *NFTPort) addOutside(a NFTAddress) {
	for i := range p.Outside {
		if o := &p.Outside[i]; o.IP == a.IP {
			o.Ranged = o.Ranged || a.Ranged
			return
		}
	}
	if len(p.Outside) < maxAddresses {
		p.Outside = append(p.Outside, a)
	}
}

// readChains reads the endpoints, the policy and the source ranges of a Service.
func (m *NFT) readChains(p *NFTPort) {
	votes := 0
	for _, of := range [...]struct {
		c    *ruleset.NFTChain
		list *[]Endpoint
	}{{p.All, &p.Endpoints}, {p.Local, &p.LocalEndpoints}} {
		if of.c == nil {
			continue
		}
		var single []Endpoint
		for _, r := range of.c.Rules {
			if x := m.words.rule.FindStringSubmatch(r.Text); p.ClusterIP == "" && x != nil && x[1] != "" {
				p.Marked, p.InternalLocal = x[1], of.c == p.Local
			}
			if strings.Contains(r.Text, " saddr @affinity-") {
				votes++
			}
			if _, to, ok := strings.Cut(r.Text, "dnat to "); ok && r.Entries == nil && single == nil {
				single = []Endpoint{m.endpoint(p, to, r.Line)}
			}
			if r.Entries != nil && *of.list == nil {
				*of.list = make([]Endpoint, 0, len(r.Entries))
				for _, e := range r.Entries {
					*of.list = append(*of.list, m.endpoint(p, e.Target, r.Line))
				}
			}
		}
		if *of.list == nil && single != nil {
			*of.list = single
			m.Single++
		} else if len(*of.list) == 1 && (*of.list)[0].Chain == "" {
			m.Choices++
		}
		for _, e := range *of.list {
			c := m.Chain(e.Chain)
			for i := 0; c != nil && i < len(c.Rules); i++ {
				if strings.Contains(c.Rules[i].Text, "update @affinity-") {
					votes++
				}
			}
			if s := m.Sets[AffinitySet(e.Target())]; s != nil && p.AffinitySeconds == 0 {
				p.AffinitySeconds = s.Timeout
			}
		}
	}
	if p.Affinity = votes > 0 && votes >= len(p.Endpoints)+len(p.LocalEndpoints); !p.Affinity {
		p.AffinitySeconds = 0
	}
	local := 0
	for i := 0; p.External != nil && i < len(p.External.Rules); i++ {
		r := p.External.Rules[i]
		if r.Target != p.Chain("service") && r.Target != "" && !strings.HasPrefix(r.Target, "mark-") || strings.Contains(r.Text, "saddr ") ||
			strings.HasPrefix(r.Text, "meta iif") {
			local++
		}
	}
	p.ExternalLocal = p.ExternalLocal || local > 1
	if p.Firewall != nil && len(p.Firewall.Rules) > 0 {
		r := p.Firewall.Rules[0]
		_, p.Ranges, _ = strings.Cut(strings.TrimSuffix(r.Text, " drop"), " saddr != ")
		if p.SourceRanges = r.Sources; p.SourceRanges == nil && p.Ranges != "" {
			p.SourceRanges = []string{p.Ranges}
		}
	}
}

// fit votes on the settings.
func (m *NFT) fit() {
	bits, masquerade, pods := map[string]int{}, map[string]int{}, map[string]int{}
	listed, ports := 0, 0
	if m.Sets["nodeport-ips"] != nil {
		listed++
	}
	for _, c := range m.Chains {
		kind, _ := NFTServiceChain(c.Name)
		for i := 0; kind != "endpoint" && i < len(c.Rules); i++ {
			text := c.Rules[i].Text
			if kind == "" && strings.Contains(text, "@nodeport-ips") {
				listed++
			}
			if to, ok := strings.CutSuffix(text, " drop"); ok && c.Name == "cluster-ips-check" && strings.Contains(to, "/") && m.Unused == "" {
				m.Unused = strings.TrimPrefix(to, m.Family+" daddr ")
			}
			if kind != "service" && kind != "local" {
				if bit := m.words.bit.FindStringSubmatch(text); bit != nil {
					bits[bit[1]]++
				}
			}
			switch x := m.words.rule.FindStringSubmatch(text); {
			case x == nil:
			case x[5] == "goto service-":
				if kind == "external" && x[3] != "" && x[4] == "" {
					pods[x[3]]++
				}
			case x[1] != "":
				masquerade[x[3]]++
				if ports--; x[2] != "" {
					ports += 2
				}
			}
		}
	}
	m.Listed, m.ByPort, m.Bit = listed > 1, ports > 0, "16384"
	if len(bits) > 0 {
		m.Bit = mostFrequent(bits)
	}
	if m.Masquerades = len(masquerade) > 0; m.Masquerades {
		m.Masquerade = mostFrequent(masquerade)
	}
	switch {
	case len(pods) > 0:
		if m.Pods = mostFrequent(pods); !m.Masquerades {
			words := strings.SplitAfterN(m.Pods, " ", 3)
			m.Masquerades, m.Masquerade = true, words[0]+words[1]+"!= "+words[2]
		}
	case strings.Contains(m.Masquerade, "!= "):
		m.Pods = strings.Replace(m.Masquerade, "!= ", "", 1)
	}
}

// complete sets the fields of the report from the Service that was read.
func (p *NFTPort) complete() {
	p.Port, p.NodePort = atoi(p.Number), atoi(p.Node)
	for _, a := range p.Outside {
		if p.ExternalIPs = append(p.ExternalIPs, a.IP); a.Ranged {
			p.LoadBalancerIPs = append(p.LoadBalancerIPs, a.IP)
		}
	}
	for _, c := range []*ruleset.NFTChain{p.Firewall, p.External, p.All, p.Local} {
		if c != nil {
			p.Chains = append(p.Chains, c.Name)
		}
	}
	for _, list := range [][]Endpoint{p.Endpoints, p.LocalEndpoints} {
		for i := range list {
			list[i].Chance = 1 / float64(len(list))
		}
	}
}

// Target returns the chain of an endpoint, or its address if it has none.
func (e *Endpoint) Target() string { return cmp.Or(e.Chain, e.Address) }

// endpoint returns the endpoint that a rule names: "10.0.0.1:80", or "endpoint-XXXXXXXX-ns/name/tcp/port__10.0.0.1/80". An IPv6 address has
// dots there. Without an address, the endpoint is not the Service's own.
func (m *NFT) endpoint(p *NFTPort, target string, line int) Endpoint {
	kind, base := NFTServiceChain(target)
	address, own := strings.CutPrefix(base, p.Base+"__")
	switch {
	case kind == "" && strings.Contains(target, ":"):
		return Endpoint{Address: target, Line: line}
	case kind != "endpoint" || !own:
		return Endpoint{Chain: target, Line: line}
	}
	ip, port, _ := strings.Cut(address, "/")
	if m.Family == ruleset.IPv6 {
		ip = strings.ReplaceAll(ip, ".", ":")
	}
	return Endpoint{Address: net.JoinHostPort(ip, port), Chain: target, Line: line}
}
