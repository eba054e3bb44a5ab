package expect

import (
	"strconv"
	"strings"

	"nodegate/internal/ruleset"
)

// The functions of this file are what kube-proxy writes into the chains of nftables mode from 1.30 on (syncProxyRules of
// pkg/proxy/nftables).

// NFT has the parameters of a table kube-proxy.
type NFT struct {
	Inline     bool // from 1.36: rules set the mark themselves, and translate without chains of endpoints
	Bit        uint32
	Masquerade *ruleset.NFTRule // the conditions of ClusterIP traffic that is masqueraded; nil for none
	Pods       *ruleset.NFTRule // the conditions of traffic from Pods; nil if kube-proxy does not know them
}

// mark returns a rule with these conditions that marks packets for masquerading.
func (p *NFT) mark(r ruleset.NFTRule) ruleset.NFTRule {
	if p.Inline {
		r.MarkSet = p.Bit
	} else {
		r.Target = "mark-for-masquerade"
	}
	return r
}

// Shared returns the rules of a chain that does not depend on Services.
func (p *NFT) Shared(chain string) []ruleset.NFTRule {
	switch {
	case chain == "reject-chain":
		return []ruleset.NFTRule{{Verdict: "reject"}}
	case chain == "mark-for-masquerade":
		return []ruleset.NFTRule{{MarkSet: p.Bit}}
	case p.Inline:
		return []ruleset.NFTRule{{MarkTest: p.Bit, MarkToggle: p.Bit, Masquerade: true, FullyRandom: true},
			{Other: true, Masquerade: true, FullyRandom: true}} // @hairpin-connections
	}
	return []ruleset.NFTRule{{MarkTest: p.Bit, MarkUnset: true, Verdict: "return"}, {MarkToggle: p.Bit}, {Masquerade: true, FullyRandom: true}}
}

// AffinitySet returns the set of the clients of an endpoint.
func AffinitySet(endpoint string) string {
	return "affinity-" + strings.TrimPrefix(endpoint, "endpoint-")
}

// Dispatch returns the rules of the chain of a Service, or of its endpoints on this node. Endpoints are chains or addresses. The
// ClusterIP is "" if another chain has it. From 1.37, a single address needs no choice.
func (p *NFT) Dispatch(clusterIP, proto string, endpoints []string, affinity, single bool) (rules []ruleset.NFTRule) {
	if clusterIP != "" && p.Masquerade != nil && !p.Inline {
		r := p.mark(*p.Masquerade)
		r.Destination = clusterIP
		rules = append(rules, r)
	}
	choice := ruleset.NFTRule{Random: true, Modulus: len(endpoints), Entries: make([]ruleset.NFTEntry, 0, len(endpoints))}
	for i, e := range endpoints {
		if affinity {
			rules = append(rules, ruleset.NFTRule{Source: "@" + AffinitySet(e), Target: e})
		}
		if !strings.HasPrefix(e, "endpoint-") {
			choice.Protocol = proto
		}
		choice.Entries = append(choice.Entries, ruleset.NFTEntry{Key: i, Target: e})
	}
	if single && len(endpoints) == 1 {
		choice = ruleset.NFTRule{Protocol: proto, To: endpoints[0]}
	}
	return append(rules, choice)
}

// Endpoint returns the rules of an endpoint's chain.
func (p *NFT) Endpoint(chain, proto, ip, address string, affinity bool) (rules []ruleset.NFTRule) {
	if !p.Inline {
		rules = append(rules, p.mark(ruleset.NFTRule{Source: ip}))
	}
	if affinity {
		rules = append(rules, ruleset.NFTRule{Update: AffinitySet(chain)})
	}
	return append(rules, ruleset.NFTRule{Protocol: proto, To: address})
}

// External returns the rules of the chain for external traffic. With policy Local, local is the chain of local endpoints, or "".
func (p *NFT) External(service, local string, policyLocal bool) (rules []ruleset.NFTRule) {
	if !policyLocal {
		return append(rules, p.mark(ruleset.NFTRule{}), ruleset.NFTRule{Target: service})
	}
	if p.Pods != nil {
		r := *p.Pods
		r.Target = service
		rules = append(rules, r)
	}
	rules = append(rules, p.mark(ruleset.NFTRule{FromLocal: true}), ruleset.NFTRule{FromLocal: true, Target: service})
	if local != "" {
		rules = append(rules, ruleset.NFTRule{Target: local})
	}
	return rules
}

// NFTText writes a rule in nft's syntax.
func NFTText(r *ruleset.NFTRule) string {
	var words []string
	put := func(is bool, text ...string) {
		if is {
			words = append(words, strings.Join(text, ""))
		}
	}
	not := map[bool]string{true: "!= "}[r.NotSource]
	hex := func(mark uint32) string { return "0x" + strconv.FormatUint(uint64(mark), 16) }
	put(r.Destination != "", "daddr ", r.Destination)
	put(r.Source != "", "saddr ", not, r.Source)
	put(r.In != "", "iifname ", not, r.In)
	put(r.FromLocal, "fib saddr type local")
	put(r.Protocol != "", "meta l4proto ", r.Protocol)
	put(r.Other && r.Masquerade, "@hairpin-connections")
	put(r.MarkTest != 0, "meta mark & ", hex(r.MarkTest), map[bool]string{true: " == 0", false: " != 0"}[r.MarkUnset])
	put(r.MarkSet != 0, "meta mark set meta mark | ", hex(r.MarkSet))
	put(r.MarkToggle != 0, "meta mark set meta mark ^ ", hex(r.MarkToggle))
	put(r.Update != "", "update @", r.Update, " { saddr }")
	put(r.Masquerade, "masquerade fully-random")
	put(r.To != "", "dnat to ", r.To)
	put(r.Entries != nil, "numgen random mod ", strconv.Itoa(r.Modulus), ", one entry for each endpoint")
	put(r.Target != "", "goto ", r.Target)
	put(r.Verdict != "", r.Verdict)
	return strings.Join(words, " ")
}
