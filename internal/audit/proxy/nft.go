package proxy

import (
	"cmp"
	"fmt"
	"net"
	"regexp"
	"strings"

	"nodegate/internal/audit/compare"
	"nodegate/internal/audit/expect"
	"nodegate/internal/audit/model"
	"nodegate/internal/ruleset"
)

// judgeNFT judges a table kube-proxy of nftables mode.
func (r *Judgment) judgeNFT(t *ruleset.NFTTable, opts *Options, out *Collector) {
	r.Mode = "nftables"
	if t.Chain("endpoints-check") != nil && t.Sets["cluster-ips"] == nil {
		out.Add(Finding{Name: partial, Family: t.Family, Remedy: "upgrade kube-proxy",
			Message: "kube-proxy 1.29 (alpha) wrote this table, which was not judged"})
		return
	}
	r.Families[t.Family] = true
	m := model.FromNFT(t)
	result := compare.DiffNFT(m, expect.NFTForms(), !opts.WithoutServices)
	r.Version = r.Version.narrow(VersionRange{result.Min, result.Max})
	reported := map[string]bool{}
	for _, d := range result.List {
		f := newFinding(nftName(&d), t.Family, ruleset.KubeProxyTable, &d)
		f.Rule = ruleset.RuleText(d.Extra)
		subject := cmp.Or(d.Service, d.Name)
		if !reported[subject] {
			out.Add(f)
		}
		reported[subject] = true
	}
	for _, c := range result.Unused {
		kind, base := model.NFTServiceChain(c.Name)
		base, _, _ = strings.Cut(base, "__")
		if p := m.Port(base); p != nil && !reported[p.Name] && (kind != "external" || !opts.NoExternalIPs) {
			out.Add(Finding{Name: "kubeproxy.chain.unreferenced", Family: t.Family, Table: ruleset.KubeProxyTable, Chain: c.Name, Line: c.Line,
				Handle: c.Handle, Service: p.Name, Message: "no rule jumps to " + c.Name})
		}
	}
	if n := len(result.Unknown); n > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("kube-proxy up to 1.%d does not write rules of this form: %s (and %d more): a newer release may, "+
			"so rules that are missing were judged only if most chains have them", newestMinor, ruleset.RuleText(result.Unknown[0]), n-1))
	}
	if opts.WithoutServices {
		return
	}
	r.filtered[t.Family] = true
	for _, p := range m.Ports {
		if p.Reached {
			r.Services = append(r.Services, p.Service)
		}
	}
	if to := t.Sets["nodeport-ips"]; to == nil || len(to.Elements) > 0 { // without the set at every address of the node
		r.NodePorts[t.Family] = true
	}
	if result.Inline && t.Sets["hairpin-connections"] != nil {
		r.hairpins[t.Family] = map[string]bool{}
		for _, e := range m.Elements("hairpin-connections") {
			if len(e.Key) == 4 {
				r.hairpins[t.Family][e.Key[2]+" "+net.JoinHostPort(e.Key[0], e.Key[3])] = true
			}
		}
	}
}

// nftName returns the kind of finding of a difference.
func nftName(d *compare.Difference) string {
	first := cmp.Or(d.Missing, d.Extra)
	switch {
	case strings.HasPrefix(d.Name, "filter-") || strings.HasPrefix(d.Name, "nat-"):
		if d.Extra == "" || strings.HasPrefix(d.Extra, "hook ") {
			return "kubeproxy.jump.missing"
		}
	case d.Name == "reject-chain", strings.HasSuffix(d.Name, "-endpoints-check") && d.Extra == "",
		strings.HasPrefix(d.Name, "no-endpoint-") && d.Missing != "":
		return "kubeproxy.service.reject"
	case strings.HasSuffix(d.Missing, "masquerade fully-random") && strings.HasSuffix(strings.TrimSuffix(d.Extra, " random"), "masquerade"):
		return "kubeproxy.masquerade.random-fully"
	case !d.Empty && regexp.MustCompile(`@affinity-|^timeout `).MatchString(first):
		return "kubeproxy.affinity.set"
	}
	return damaged
}
