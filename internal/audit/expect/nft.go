package expect

import (
	"cmp"
	"fmt"
	"strings"

	"nodegate/internal/audit/model"
	"nodegate/internal/ruleset"
)

// The functions of this file return kube-proxy's table of nftables mode from 1.30 on (setupNFTables and
// syncProxyRules of pkg/proxy/nftables). A rule is the text of ruleset.NFTRule, or for a choice among endpoints the text of [NFTText].

// NFTForm is what some releases write differently.
type NFTForm struct {
	Min, Max int  // minor versions
	Early    bool // until a patch release of 1.33: other filter chains
	Inline   bool // from 1.36: rules set the mark themselves, and translate without chains of endpoints
	Single   bool // from 1.37: a single endpoint needs no choice
}

// NFTForms returns the forms that are known, oldest first.
func NFTForms() []NFTForm {
	return []NFTForm{{Min: 30, Max: 33, Early: true}, {Min: 33, Max: 35}, {Min: 36, Max: 36, Inline: true},
		{Min: 37, Max: 37, Inline: true, Single: true}}
}

// NFTChain is a chain that does not depend on Services. The first rule of a base chain is [NFTHook]'s.
type NFTChain struct {
	Name  string
	Rules []string
}

// NFTHook describes a base chain.
func NFTHook(hook string, priority int, policy string) string {
	return fmt.Sprintf("hook %s priority %d, policy %s", hook, priority, cmp.Or(policy, "accept"))
}

// mark returns a rule with these conditions that marks packets for masquerading.
func (f *NFTForm) mark(m *model.NFT, conditions string) string {
	if f.Inline {
		return conditions + "meta mark set meta mark | " + m.Bit
	}
	return conditions + "jump mark-for-masquerade"
}

// Shared returns the chains that do not depend on Services.
func (f *NFTForm) Shared(m *model.NFT) (list []NFTChain) {
	chain := func(name string, rules ...string) { list = append(list, NFTChain{name, rules}) }
	base := func(name, hook string, priority int, jumps ...string) {
		words := ""
		if strings.HasPrefix(name, "filter-") {
			words = "ct state new "
		}
		rules := []string{NFTHook(hook, priority, "")}
		for _, to := range jumps {
			rules = append(rules, words+"jump "+to)
		}
		chain(name, rules...)
	}
	const endpoints, firewall, clusterIPs = "service-endpoints-check", "firewall-check", "cluster-ips-check"
	if f.Early {
		base("filter-prerouting", "prerouting", -110, firewall)
		base("filter-input", "input", -110, "nodeport-endpoints-check", endpoints)
		base("filter-forward", "forward", -110, endpoints, clusterIPs)
		base("filter-output", "output", -110, endpoints, firewall)
		base("filter-output-post-dnat", "output", -90, clusterIPs)
	} else {
		base("filter-prerouting-pre-dnat", "prerouting", -110, firewall)
		base("filter-output-pre-dnat", "output", -110, firewall)
		base("filter-input", "input", 0, "nodeport-endpoints-check", endpoints)
		base("filter-forward", "forward", 0, endpoints, clusterIPs)
		base("filter-output", "output", 0, endpoints, clusterIPs)
	}
	base("nat-prerouting", "prerouting", -100, "services")
	base("nat-output", "output", -100, "services")
	base("nat-postrouting", "postrouting", 100, "masquerading")

	ip := m.Family
	address, port := ip+" daddr . meta l4proto . th dport vmap @", "meta l4proto . th dport vmap @"
	loopback, node, local := "127.0.0.0/8 ", ip+" daddr @nodeport-ips ", ""
	if ip == ruleset.IPv6 {
		loopback = "::1 "
	}
	if !m.Listed {
		node, local = ip+" daddr != "+loopback, "fib daddr type local "
	}
	services := []string{address + "service-ips", local + node + port + "service-nodeports"}
	if f.Inline && m.Masquerades {
		services = append([]string{f.mark(m, ip+" daddr @cluster-ips "+m.Masquerade)}, services...)
	}
	chain("services", services...)
	blocked := []string{node + port + "no-endpoint-nodeports"}
	if reject := "localhost-nodeport-reject-ports"; m.Sets[reject] != nil { // from 1.37
		blocked = append(blocked, ip+" daddr "+loopback+port+reject)
	}
	chain("nodeport-endpoints-check", blocked...)
	chain(endpoints, address+"no-endpoint-services")
	chain(firewall, address+"firewall-ips")
	unused := []string{ip + " daddr @cluster-ips reject"}
	if m.Unused != "" {
		unused = append(unused, ip+" daddr "+m.Unused+" drop")
	}
	chain(clusterIPs, unused...)
	chain("reject-chain", "reject")
	toggle := "meta mark set meta mark ^ " + m.Bit
	if f.Inline {
		chain("masquerading", "meta mark & "+m.Bit+" != 0 "+toggle+" masquerade fully-random",
			"ct status dnat "+ip+" saddr . "+ip+" daddr . meta l4proto . th dport @hairpin-connections masquerade fully-random")
	} else {
		chain("masquerading", "meta mark & "+m.Bit+" 0 return", toggle, "masquerade fully-random")
		chain("mark-for-masquerade", "meta mark set meta mark | "+m.Bit)
	}
	return list
}

// Sets returns the names of the sets and maps, first the six whose elements are of Services alone.
func (f *NFTForm) Sets(m *model.NFT) []string {
	list := []string{"service-ips", "service-nodeports", "no-endpoint-services", "no-endpoint-nodeports", "firewall-ips", "cluster-ips"}
	if m.Listed {
		list = append(list, "nodeport-ips")
	}
	if f.Inline {
		list = append(list, "hairpin-connections")
	}
	return list
}

// Uses reports which chains a Service has: for all endpoints, for those on this node, and for external traffic.
func Uses(p *model.NFTPort) (all, local, external bool) {
	written := func(c *ruleset.NFTChain) bool { return c != nil && len(c.Rules) > 0 }
	external = p.Serves && (len(p.Outside) > 0 || p.Node != "" || written(p.External))
	leads := false // the chain for external traffic leads to endpoints on this node
	for i := 0; p.External != nil && i < len(p.External.Rules); i++ {
		leads = leads || p.External.Rules[i].Target == p.Chain("local")
	}
	local = p.Serves && (p.InternalLocal && p.Blocked == "" || p.ExternalLocal && external && (leads || written(p.Local)))
	return p.Serves && (!p.InternalLocal || external), local, external
}

// Elements calls add for the elements of maps and sets that a Service has.
func Elements(p *model.NFTPort, add func(set, key, value string)) {
	all, local, external := Uses(p)
	no, here := " goto reject-chain", p.Serves && (local || !p.ExternalLocal)
	if p.Serves {
		no = " drop"
	}
	inside := " goto " + p.Chain("service")
	if p.InternalLocal || !all {
		inside = " goto " + p.Chain("local")
	}
	number, to := p.Number, " . "+p.Protocol+" . "
	switch {
	case p.ClusterIP != "":
		add("cluster-ips", p.ClusterIP, "")
		if p.Blocked != "" {
			add("no-endpoint-services", p.ClusterIP+to+number, no)
		} else {
			add("service-ips", p.ClusterIP+to+number, inside)
		}
	case len(p.Name) < model.LongestComment: // else its element may have a truncated name
		add("service-ips", "its ClusterIP"+to+"port", inside)
	}
	place := func(served, blocked, key string) {
		if p.Serves {
			add(served, key, " goto "+p.Chain("external"))
		}
		if !here {
			add(blocked, key, no)
		}
	}
	ranged := false
	for _, a := range p.Outside {
		if p.Number == "" {
			number = a.Number
		}
		place("service-ips", "no-endpoint-services", a.IP+to+number)
		if ranged = ranged || a.Ranged; a.Ranged {
			add("firewall-ips", a.IP+to+number, " goto "+p.Chain("firewall"))
		}
	}
	if p.Firewall != nil && len(p.Firewall.Rules) > 0 && !ranged {
		add("firewall-ips", "its addresses"+to+"port", " goto "+p.Chain("firewall"))
	}
	if p.Node != "" && (external || !p.Serves) {
		place("service-nodeports", "no-endpoint-nodeports", p.Protocol+" . "+p.Node)
	}
}

// NFTText returns the text of a rule without the endpoints among which it chooses.
func NFTText(r *ruleset.NFTRule) string {
	if r.Entries == nil {
		return r.Text
	}
	keys := make([]bool, len(r.Entries))
	n := 0
	for _, e := range r.Entries {
		if e.Key >= 0 && e.Key < len(keys) && !keys[e.Key] {
			keys[e.Key] = true
			n++
		}
	}
	head, _, _ := strings.Cut(r.Text, "{")
	return head + choices(n)
}

func choices(n int) string {
	if n == 1 {
		return "{ one endpoint }"
	}
	return fmt.Sprintf("{ %d endpoints }", n)
}

// Dispatch returns the rules of the chain of a Service, or of its endpoints on this node. Endpoints are chains or addresses.
func (f *NFTForm) Dispatch(m *model.NFT, p *model.NFTPort, local bool, endpoints []model.Endpoint) (rules []string) {
	if to := p.ClusterIP; !f.Inline && m.Masquerades && p.InternalLocal == local && p.Blocked == "" {
		if to = m.Family + " daddr " + cmp.Or(to, p.Marked) + " "; m.ByPort {
			to += p.Protocol + " dport " + p.Number + " "
		}
		rules = append(rules, f.mark(m, to+m.Masquerade))
	}
	for _, e := range endpoints {
		if p.Affinity {
			rules = append(rules, m.Family+" saddr @"+model.AffinitySet(e.Target())+" goto "+e.Target())
		}
	}
	switch choice := fmt.Sprintf("numgen random mod %d ", len(endpoints)); {
	case p.Affinity || !f.Inline:
		rules = append(rules, choice+"vmap "+choices(len(endpoints)))
	case f.Single && len(endpoints) == 1:
		rules = append(rules, "meta l4proto "+p.Protocol+" dnat to "+endpoints[0].Target())
	default:
		rules = append(rules, "meta l4proto "+p.Protocol+" dnat to "+choice+"map "+choices(len(endpoints)))
	}
	return rules
}

// Endpoint returns the rules of the chain of an endpoint at an address.
func (f *NFTForm) Endpoint(m *model.NFT, p *model.NFTPort, chain, address string) (rules []string) {
	if !f.Inline {
		ip, _ := model.SplitAddress(address)
		rules = append(rules, f.mark(m, m.Family+" saddr "+ip+" "))
	}
	if p.Affinity {
		rules = append(rules, "update @"+model.AffinitySet(chain)+" { "+m.Family+" saddr }")
	}
	return append(rules, "meta l4proto "+p.Protocol+" dnat to "+address)
}

// External returns the rules of the chain for external traffic.
func (f *NFTForm) External(m *model.NFT, p *model.NFTPort) (rules []string) {
	all := "goto " + p.Chain("service")
	if !p.ExternalLocal {
		return []string{f.mark(m, ""), all}
	}
	if m.Pods != "" {
		rules = append(rules, m.Pods+all)
	}
	const node = "fib saddr type local "
	rules = append(rules, f.mark(m, node), node+all)
	if _, local, _ := Uses(p); local {
		rules = append(rules, "goto "+p.Chain("local"))
	}
	return rules
}

// Firewall returns the rule of the chain that drops other sources of a load balancer's connections.
func (f *NFTForm) Firewall(m *model.NFT, p *model.NFTPort) []string {
	return []string{m.Family + " saddr != " + cmp.Or(p.Ranges, "...") + " drop"}
}
