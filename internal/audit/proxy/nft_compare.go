package proxy

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strings"

	"nodegate/internal/audit/expect"
	"nodegate/internal/audit/model"
	"nodegate/internal/ruleset"
)

// fit votes on the parameters: until 1.35 by the Services' own chains, from 1.36 by chain services.
func (a *nftAudit) fit() {
	a.writes = expect.NFT{Inline: a.version.Min >= 36}
	most := map[string]int{}
	vote := func(to **ruleset.NFTRule, kind string, r *ruleset.NFTRule) {
		key := kind + nftDetector(r)
		most[key]++
		if old := *to; old == nil || most[key] > most[kind+nftDetector(old)] {
			*to = &ruleset.NFTRule{Source: r.Source, In: r.In, NotSource: r.NotSource, Other: r.Other}
		}
	}
	for c := range a.all() {
		kind, _, _ := nftKind(c.Name)
		for _, r := range c.Rules {
			switch {
			case c.Name == "mark-for-masquerade" && !a.writes.Inline, kind == "external" && a.writes.Inline, c.Name == "services":
				a.writes.Bit = cmp.Or(a.writes.Bit, r.MarkSet)
			}
			switch {
			case marksPackets(r) && r.Destination != "" && (kind == "service" || kind == "local" || c.Name == "services"):
				vote(&a.writes.Masquerade, "", r)
			case kind == "external" && strings.HasPrefix(r.Target, "service-") && (r.Source != "" || r.In != "") && !r.NotSource && !r.Other:
				vote(&a.writes.Pods, "pods ", r)
			}
		}
	}
	if m := a.writes.Masquerade; m != nil {
		if a.detector = nftDetector(m); a.writes.Pods == nil && a.detector != "all" {
			a.writes.Pods = &ruleset.NFTRule{Source: m.Source, In: m.In}
		}
	}
	if c := a.chain("masquerading"); c != nil {
		for _, r := range c.Rules {
			a.writes.Bit = cmp.Or(a.writes.Bit, r.MarkTest)
		}
	}
	a.writes.Bit = cmp.Or(a.writes.Bit, 0x4000)
}

func nftDetector(r *ruleset.NFTRule) string {
	switch {
	case r.Source != "" && r.NotSource:
		return "not from " + r.Source
	case r.In != "" && r.NotSource:
		return "not from interface " + r.In
	case r.Source != "":
		return "from " + r.Source
	}
	return "all"
}

// judgeShared compares the chains that do not depend on Services.
func (a *nftAudit) judgeShared() {
	a.fit()
	for _, name := range []string{"mark-for-masquerade", "masquerading", "reject-chain"} {
		if c := a.chain(name); c != nil && (name != "mark-for-masquerade" || !a.writes.Inline) {
			a.compare(nil, c, a.writes.Shared(name), 0)
		}
	}
}

// judgeService compares the chains of one Service.
func (a *nftAudit) judgeService(n *nftNode) {
	used := func(c *nftChain) bool { return c != nil && (len(c.Rules) > 0 || c.refs > 0) && !c.blamed }
	if used(n.service) {
		n.out.Endpoints = a.judgeDispatch(n, n.service, n.out.InternalLocal)
	}
	if used(n.local) {
		n.out.LocalEndpoints = a.judgeDispatch(n, n.local, !n.out.InternalLocal)
	}
	if used(n.external) {
		local := ""
		if n.local != nil && (len(n.local.Rules) > 0 || n.local.refs > 0) {
			local = n.local.Name
		}
		n.out.ExternalLocal = slices.ContainsFunc(n.external.Rules, func(r *ruleset.NFTRule) bool {
			return r.FromLocal || strings.HasPrefix(r.Target, "local-") || r.Source != "" || r.In != ""
		})
		service := "service-" + strings.TrimPrefix(n.external.Name, "external-")
		if a.compare(n, n.external, a.writes.External(service, local, n.out.ExternalLocal), 0); local == "" {
			a.judgeNoLocal(n)
		}
	}
}

// judgeDispatch compares a Service's chain and the chains of the endpoints to which it leads. more: another chain has the ClusterIP.
func (a *nftAudit) judgeDispatch(n *nftNode, c *nftChain, more bool) (list []Endpoint) {
	var dispatch *ruleset.NFTRule
	var entries []ruleset.NFTEntry
	affinity := 0
	for _, r := range c.Rules {
		switch kind, _, _ := nftKind(r.Target); {
		case dispatch == nil && r.Entries != nil:
			dispatch, entries = r, r.Entries
		case dispatch == nil && r.To != "" && a.version.Max >= 37:
			dispatch, entries = r, []ruleset.NFTEntry{{Target: r.To}}
		case kind == "endpoint" && strings.HasPrefix(r.Source, "@"):
			affinity++
		}
	}
	endpoints := make([]string, 0, len(entries))
	seen := make(map[string]bool, len(entries))
	list = make([]Endpoint, 0, len(entries))
	for _, entry := range entries {
		kind, _, base := nftKind(entry.Target)
		e := Endpoint{Line: dispatch.Line, Chance: 1 / float64(max(dispatch.Modulus, 1)), Address: entry.Target}
		own := kind == "" && strings.Contains(entry.Target, ":")
		if !own {
			e.Chain, e.Address = entry.Target, ""
			if own = kind == "endpoint" && strings.HasPrefix(base, n.base+"__"); own {
				e.Address = endpointAddress(base, a.t.Family)
			}
		}
		list = append(list, e)
		if own && !seen[entry.Target] {
			seen[entry.Target] = true
			endpoints = append(endpoints, entry.Target)
			if to := a.chain(entry.Target); to != nil && slices.ContainsFunc(to.Rules, func(r *ruleset.NFTRule) bool { return r.Update != "" }) {
				affinity++
			}
		}
	}
	ip := n.out.ClusterIP
	if i := slices.IndexFunc(c.Rules, marksPackets); ip == "" && i >= 0 {
		ip = c.Rules[i].Destination
	} else if more {
		ip = ""
	} else if a.writes.Masquerade != nil && ip != "" {
		n.out.Masquerade = a.detector
	}
	single := dispatch != nil && dispatch.To != ""
	a.compare(n, c, a.writes.Dispatch(ip, n.proto, endpoints, affinity > 0, single), 0)
	for i := range list {
		e := &list[i]
		to := a.chain(e.Chain)
		if !seen[e.Chain] || to == nil {
			continue
		}
		seen[e.Chain] = false
		ip, _ := model.SplitAddress(e.Address)
		a.compare(n, to, a.writes.Endpoint(e.Chain, n.proto, ip, e.Address, affinity > 0), e.Chance)
		if affinity > 0 {
			a.judgeAffinity(n, c, expect.AffinitySet(e.Chain))
		}
	}
	return list
}

// judgeAffinity checks that the set of an endpoint's clients exists, and that the sets of a Service have the same timeout.
func (a *nftAudit) judgeAffinity(n *nftNode, c *nftChain, set string) {
	s := a.t.Sets[set]
	switch {
	case c.blamed:
	case s == nil:
		a.addFinding(damaged, c, nil, n, "table %s %s has no %s", a.t.Family, ruleset.KubeProxyTable, set)
	case n.out.AffinitySeconds != 0 && s.Timeout != n.out.AffinitySeconds:
		a.addFinding("kubeproxy.affinity.set", c, nil, n,
			"the timeout of @%s is %d s, the timeout of another set of the Service %d s", set, s.Timeout, n.out.AffinitySeconds)
	default:
		n.out.AffinitySeconds = s.Timeout
	}
}

// endpointAddress parses "ns/name/tcp/__10.0.0.1/80". IPv6 addresses have dots instead of colons.
func endpointAddress(base, family string) string {
	_, address, _ := strings.Cut(base, "__")
	ip, port, _ := strings.Cut(address, "/")
	if family == ruleset.IPv6 {
		ip = strings.ReplaceAll(ip, ".", ":")
	}
	return net.JoinHostPort(ip, port)
}

// compare reports the difference between a chain and what kube-proxy writes there, which concerns a share of the Service's connections.
// A rule that neither ends nor changes a packet's way is ignored.
func (a *nftAudit) compare(n *nftNode, c *nftChain, want []ruleset.NFTRule, share float64) {
	if c.blamed {
		return
	}
	have := slices.DeleteFunc(slices.Clone(c.Rules), func(r *ruleset.NFTRule) bool {
		return !decides(r) && r.Update == "" && r.MarkToggle == 0
	})
	i := 0
	for i < len(want) && i < len(have) && sameNFT(&want[i], have[i]) {
		i++
	}
	var missing, late, extra *ruleset.NFTRule
	left := slices.Clone(have[i:])
	for w := range slices.Values(want[i:]) {
		if k := slices.IndexFunc(left, func(r *ruleset.NFTRule) bool { return sameNFT(&w, r) }); k >= 0 {
			left = slices.Delete(left, k, k+1)
		} else if missing == nil {
			missing = &w
		}
	}
	if len(left) > 0 {
		extra = left[0]
	}
	for ; i < len(want) && missing == nil && extra == nil && late == nil; i++ { // affinity rules have any order
		if w := &want[i]; !sameNFT(w, have[i]) && !isNFTAffinity(w) {
			late = w
		}
	}
	why := ""
	switch {
	case missing == nil && extra == nil && late == nil:
		return
	case len(c.Rules) == 0:
		why = c.Name + " has no rules"
	case missing != nil && extra != nil:
		why = fmt.Sprintf("kube-proxy writes %q here", expect.NFTText(missing))
	case missing != nil:
		why = fmt.Sprintf("%s lacks the rule %q", c.Name, expect.NFTText(missing))
	case extra != nil:
		why = "kube-proxy does not write this rule into " + c.Name
	default:
		why = fmt.Sprintf("the rules are out of order: %q comes too late", expect.NFTText(late))
	}
	if share > 0 {
		why += fmt.Sprintf("; this concerns %.1f %% of its connections", 100*share)
	}
	name := damaged
	switch {
	case c.Name == "reject-chain":
		name = "kubeproxy.service.reject"
	case missing != nil && extra != nil && missing.Masquerade && extra.Masquerade && !extra.FullyRandom:
		name = "kubeproxy.masquerade.random-fully"
	case missing != nil && isNFTAffinity(missing) && len(c.Rules) > 0, missing == nil && extra != nil && isNFTAffinity(extra):
		name = "kubeproxy.affinity.set"
	}
	a.addFinding(name, c, extra, n, "%s", why)
}

func isNFTAffinity(r *ruleset.NFTRule) bool {
	return strings.HasPrefix(r.Source, "@affinity-") || r.Update != ""
}

// sameNFT reports whether r is the rule w. The entries of r have any order.
func sameNFT(w, r *ruleset.NFTRule) bool {
	if w.Source != r.Source || w.Destination != r.Destination || w.In != r.In || w.Protocol != r.Protocol || w.Target != r.Target ||
		w.Verdict != r.Verdict || w.To != r.To || w.Lookup != r.Lookup || w.Update != r.Update || w.Modulus != r.Modulus ||
		w.MarkTest != r.MarkTest || w.MarkSet != r.MarkSet || w.MarkToggle != r.MarkToggle || w.NotSource != r.NotSource ||
		w.FromLocal != r.FromLocal || w.State != r.State || w.Other != r.Other || w.MarkUnset != r.MarkUnset || w.Masquerade != r.Masquerade ||
		w.FullyRandom != r.FullyRandom || w.Random != r.Random || len(w.Entries) != len(r.Entries) {
		return false
	}
	keys := make([]bool, len(r.Entries))
	for _, e := range r.Entries { // the endpoints of w are those of r, each once
		if e.Key < 0 || e.Key >= len(keys) || keys[e.Key] {
			return false
		}
		keys[e.Key] = true
	}
	return true
}
