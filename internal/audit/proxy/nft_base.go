package proxy

import (
	"slices"

	"nodegate/internal/ruleset"
)

// judgeContainers checks that the maps and sets used by the rules exist.
func (a *nftAudit) judgeContainers() {
	for _, want := range []struct {
		name  string
		since int
	}{
		{"service-ips", 29}, {"service-nodeports", 29}, {"no-endpoint-services", 29}, {"no-endpoint-nodeports", 29},
		{"firewall-ips", 30}, {"cluster-ips", 30}, {"hairpin-connections", 36},
	} {
		if a.version.Min >= want.since && a.t.Sets[want.name] == nil {
			a.mapDamaged = true
			a.addSetFinding(damaged, want.name, "", nil, "table %s %s has no %s", a.t.Family, ruleset.KubeProxyTable, want.name)
		}
	}
}

// baseChain is a chain that the kernel calls, with the chains to which kube-proxy jumps from it.
type baseChain struct {
	name, hook string
	prio       int
	jumps      []string
}

// baseChains returns the base chains of nftables mode. The filter chains moved in 1.30 and in 1.34.
// Of 1.29 (alpha), only the nat chains are judged.
func baseChains(minor int) []baseChain {
	list := []baseChain{
		{"nat-prerouting", "prerouting", -100, []string{"services"}},
		{"nat-output", "output", -100, []string{"services"}},
		{"nat-postrouting", "postrouting", 100, []string{"masquerading"}},
	}
	switch {
	case minor >= 34:
		list = append(list,
			baseChain{"filter-prerouting-pre-dnat", "prerouting", -110, []string{"firewall-check"}},
			baseChain{"filter-output-pre-dnat", "output", -110, []string{"firewall-check"}},
			baseChain{"filter-input", "input", 0, []string{"nodeport-endpoints-check", "service-endpoints-check"}},
			baseChain{"filter-forward", "forward", 0, []string{"service-endpoints-check", "cluster-ips-check"}},
			baseChain{"filter-output", "output", 0, []string{"service-endpoints-check", "cluster-ips-check"}})
	case minor >= 30:
		list = append(list,
			baseChain{"filter-prerouting", "prerouting", -110, []string{"firewall-check"}},
			baseChain{"filter-input", "input", -110, []string{"nodeport-endpoints-check", "service-endpoints-check"}},
			baseChain{"filter-forward", "forward", -110, []string{"service-endpoints-check", "cluster-ips-check"}},
			baseChain{"filter-output", "output", -110, []string{"service-endpoints-check", "firewall-check"}},
			baseChain{"filter-output-post-dnat", "output", -90, []string{"cluster-ips-check"}})
	}
	return list
}

func (a *nftAudit) judgeBaseChains() {
	for _, want := range baseChains(a.version.Min) {
		c := a.chain(want.name)
		if c == nil || c.Hook == "" {
			a.out.Add(Finding{Name: "kubeproxy.jump.missing", Family: a.t.Family, Table: ruleset.KubeProxyTable, Chain: want.name,
				Message: "no base chain " + want.name + " on hook " + want.hook})
			a.blame(want.jumps)
			continue
		}
		if c.Policy == "drop" {
			a.addFinding("kubeproxy.jump.missing", c, nil, nil,
				"%s has policy drop, kube-proxy's base chains accept: every packet of hook %s is dropped", c.Name, c.Hook)
			continue
		}
		if c.Hook != want.hook || c.Priority != want.prio {
			a.addFinding("kubeproxy.jump.missing", c, nil, nil,
				"%s is on hook %s with priority %d; it must be on hook %s with priority %d", c.Name, c.Hook, c.Priority, want.hook, want.prio)
			continue
		}
		for _, to := range want.jumps {
			found := false
			for _, r := range c.Rules {
				found = found || r.Target == to
			}
			if !found && !c.blamed {
				a.addFinding("kubeproxy.jump.missing", c, nil, nil, "%s has no jump to %s", c.Name, to)
				a.blame([]string{to})
			}
		}
	}
}

func (a *nftAudit) blame(chains []string) {
	for _, name := range chains {
		if c := a.chain(name); c != nil {
			c.blamed = true
		}
	}
}

// judgeLookups judges the chains between a base chain and a map.
func (a *nftAudit) judgeLookups() {
	for _, want := range []struct {
		chain, set, finding string
		since               int
	}{
		{"services", "service-ips", damaged, 29},
		{"services", "service-nodeports", damaged, 29},
		{"service-endpoints-check", "no-endpoint-services", "kubeproxy.service.reject", 30},
		{"nodeport-endpoints-check", "no-endpoint-nodeports", "kubeproxy.service.reject", 30},
		{"firewall-check", "firewall-ips", damaged, 30},
	} {
		c := a.chain(want.chain)
		if a.version.Min < want.since || c == nil && a.t.Sets[want.set] == nil {
			continue
		}
		if c == nil {
			continue // reported at the jump
		}
		found := slices.ContainsFunc(c.Rules, func(r *ruleset.NFTRule) bool { return r.Lookup == want.set })
		if !found && !c.blamed {
			a.addFinding(want.finding, c, nil, nil, "%s has no lookup in @%s", c.Name, want.set)
		}
	}
}
