package proxy

import (
	"slices"
	"strings"

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

// frameChain is a chain that does not depend on Services: a base chain, or one between it and a map.
type frameChain struct {
	name, hook string
	prio       int
	leads      []string // chains, "@" with maps, or verdicts
}

// frame returns the chains that lead to those of Services. The filter chains moved in 1.30 and in 1.34. Of 1.29 (alpha), only the nat
// chains are judged.
func frame(minor int) []frameChain {
	list := []frameChain{
		{"nat-prerouting", "prerouting", -100, []string{"services"}},
		{"nat-output", "output", -100, []string{"services"}},
		{"nat-postrouting", "postrouting", 100, []string{"masquerading"}},
		{"services", "", 0, []string{"@service-ips", "@service-nodeports"}},
	}
	if minor < 30 {
		return list
	}
	list = append(list,
		frameChain{"service-endpoints-check", "", 0, []string{"@no-endpoint-services"}},
		frameChain{"nodeport-endpoints-check", "", 0, []string{"@no-endpoint-nodeports"}},
		frameChain{"firewall-check", "", 0, []string{"@firewall-ips"}},
		frameChain{"cluster-ips-check", "", 0, []string{"reject @cluster-ips"}})
	if minor < 34 {
		return append([]frameChain{
			{"filter-prerouting", "prerouting", -110, []string{"firewall-check"}},
			{"filter-input", "input", -110, []string{"nodeport-endpoints-check", "service-endpoints-check"}},
			{"filter-forward", "forward", -110, []string{"service-endpoints-check", "cluster-ips-check"}},
			{"filter-output", "output", -110, []string{"service-endpoints-check", "firewall-check"}},
			{"filter-output-post-dnat", "output", -90, []string{"cluster-ips-check"}}}, list...)
	}
	return append([]frameChain{
		{"filter-prerouting-pre-dnat", "prerouting", -110, []string{"firewall-check"}},
		{"filter-output-pre-dnat", "output", -110, []string{"firewall-check"}},
		{"filter-input", "input", 0, []string{"nodeport-endpoints-check", "service-endpoints-check"}},
		{"filter-forward", "forward", 0, []string{"service-endpoints-check", "cluster-ips-check"}},
		{"filter-output", "output", 0, []string{"service-endpoints-check", "cluster-ips-check"}}}, list...)
}

// leadOf returns the chain, map or verdict to which a rule leads.
func leadOf(r *ruleset.NFTRule) string {
	switch {
	case r.Lookup != "":
		return "@" + r.Lookup
	case r.Target != "":
		return r.Target
	}
	return r.Verdict + " " + r.Destination
}

// judgeFrame judges the chains that lead to those of Services, and base chains that only another version has. A rule that neither ends
// nor changes a packet's way is ignored.
func (a *nftAudit) judgeFrame() {
	for _, want := range frame(a.version.Min) {
		c := a.chain(want.name)
		switch {
		case want.hook != "" && (c == nil || c.Hook == ""):
			a.out.Add(Finding{Name: "kubeproxy.jump.missing", Family: a.t.Family, Table: ruleset.KubeProxyTable, Chain: want.name,
				Message: "no base chain " + want.name + " on hook " + want.hook})
			a.blame(want.leads)
		case c == nil || c.blamed: // reported at the jump
		case c.Hook != want.hook || c.Priority != want.prio:
			a.addFinding("kubeproxy.jump.missing", c, nil, nil,
				"%s is on hook %s with priority %d; it must be on hook %s with priority %d", c.Name, c.Hook, c.Priority, want.hook, want.prio)
		}
		for _, to := range want.leads {
			if c == nil || c.blamed || slices.ContainsFunc(c.Rules, func(r *ruleset.NFTRule) bool { return leadOf(r) == to }) {
				continue
			}
			name := damaged
			if want.hook != "" {
				name = "kubeproxy.jump.missing"
			} else if strings.HasSuffix(c.Name, "-endpoints-check") {
				name = "kubeproxy.service.reject"
			}
			a.addFinding(name, c, nil, nil, "%s has no rule that leads to %s", c.Name, to)
			a.blame([]string{to})
		}
	}
	for c := range a.all() {
		if c.Policy == "drop" && !c.blamed {
			a.addFinding("kubeproxy.jump.missing", c, nil, nil,
				"%s has policy drop, kube-proxy's base chains accept: every packet of hook %s is dropped", c.Name, c.Hook)
		}
		for _, r := range c.Rules {
			if a.version.Min >= 30 && !c.blamed && decides(r) && !framed(c, r) {
				a.addFinding(damaged, c, r, nil, "kube-proxy does not write this rule into %s", c.Name)
			}
		}
	}
}

// framed reports whether some version of kube-proxy may write a rule into a chain that does not depend on Services.
func framed(c *nftChain, r *ruleset.NFTRule) bool {
	switch c.Name {
	case "services", "service-endpoints-check", "nodeport-endpoints-check", "firewall-check":
		return r.Lookup != "" || c.Name == "services" && marksPackets(r)
	case "cluster-ips-check": // the second rule is there only if kube-proxy knows the Service ranges
		ranges := strings.ContainsAny(r.Destination, "@{/") && r.Source == "" && !r.Other
		return ranges && (r.Verdict == "reject" || r.Verdict == "drop")
	}
	return c.Hook == "" || slices.Contains([]string{"services", "masquerading", "firewall-check", "nodeport-endpoints-check",
		"service-endpoints-check", "cluster-ips-check", "endpoints-check"}, r.Target) // the last one is of 1.29
}

// decides reports whether a rule ends a packet's way through its chain or changes the packet.
func decides(r *ruleset.NFTRule) bool {
	return r.Verdict != "" || r.Target != "" || r.To != "" || r.Masquerade || r.Entries != nil || r.Lookup != "" || r.MarkSet != 0
}

func (a *nftAudit) blame(chains []string) {
	for _, name := range chains {
		if c := a.chain(name); c != nil {
			c.blamed = true
		}
	}
}
