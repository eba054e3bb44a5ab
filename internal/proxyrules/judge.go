// Package proxyrules judges the rules that kube-proxy wrote into a node.
//
// It is a pure library: rules in, findings out. It opens no file, runs no program and changes nothing. Rules of iptables mode
// (either backend, 1.15 to 1.36) and of nftables mode (1.29 to 1.36) become one graph of Services, chains and endpoints. [Judge]
// compares the rules with kube-proxy's own invariants and, when given EndpointSlices, with the API. One cause gives one finding:
// what follows from a broken chain is not reported again.
//
// The form of the rules was read in kube-proxy's source (pkg/proxy/iptables, pkg/proxy/nftables, pkg/proxy/topology.go).
package proxyrules

import (
	"cmp"
	"slices"

	"nodegate/checks"
	"nodegate/internal/ruleset"
)

// Options is what is known beside the rules. The zero value is fine: what is unknown is judged leniently.
type Options struct {
	BeLiberal *bool      // net.netfilter.nf_conntrack_tcp_be_liberal is not 0; nil when unknown
	Endpoints *Endpoints // the API's EndpointSlices; nil: not compared
	Services  *Services  // the API's Services; nil: Services known only from the rules
	NodeName  string     // for local endpoints and node hints
	Zone      string     // for zone hints
}

// Judge compares the rules with kube-proxy's invariants and, with Options.Endpoints, with the API. Several sets are several readings of
// one node: both iptables backends and nft are judged in one report.
func Judge(sets []*ruleset.Set, opts Options) Report { return judge(sets, opts, true) }

// judge leaves the Services out unless services is set. Nothing that it finds without them depends on them.
func judge(sets []*ruleset.Set, opts Options, services bool) Report {
	out := NewCollector()
	rep := Report{Services: []Service{}, Findings: []Finding{}, Families: map[string]bool{}, NodePorts: map[string]bool{}}
	var seen backends
	for _, set := range sets {
		if set.Note != "" {
			rep.Notes = append(rep.Notes, set.Note)
		}
		for _, s := range set.Saves {
			rep.judgeSave(s, &opts, out, services)
		}
		seen.add(set)
	}
	for _, set := range sets {
		for _, t := range set.NFT {
			rep.Mode = "nftables"
			rep.Families[t.Family] = true
			a := newNFTAudit(t, out)
			a.judge()
			rep.Version = rep.Version.narrow(a.version)
			if services {
				a.judgeServices()
				rep.Services = append(rep.Services, a.services()...)
				to := t.Sets["nodeport-ips"] // nil: every address of the node
				rep.NodePorts[t.Family] = to == nil || len(to.Elements) > 0
			}
		}
	}
	if rep.Mode == "" {
		f := Finding{Name: "kubeproxy.rules.absent"}
		if len(seen.leftover) > 0 {
			f.Message = "the listing shows iptables rules of kube-proxy through nft, which cannot print their matches; " +
				"give iptables-nft-save instead"
		}
		out.Add(f)
	}
	seen.judge(out)
	compare(&rep, &opts, out.List, out)
	rep.Findings = append(rep.Findings, out.List...)
	rep.finish()
	return rep
}

func (r *Report) judgeSave(s *ruleset.Save, opts *Options, out *Collector, services bool) {
	switch {
	case isIPVS(s):
		r.Mode = "ipvs"
		out.Add(Finding{Name: "kubeproxy.mode.ipvs", Family: s.Family})
	case hasProxyChains(s):
		r.Mode = "iptables"
		r.Families[s.Family] = true
		a := newAudit(s, opts, out)
		found := a.judge()
		r.Version = r.Version.narrow(a.version)
		if found && services {
			a.judgeServices()
			r.Services = append(r.Services, a.services()...)
			r.NodePorts[s.Family] = a.nodePorts
		}
	}
}

// finish sorts the Services and gives each its verdict from the findings about it.
func (r *Report) finish() {
	type key struct{ name, family string }
	about := map[key][]int{}
	for i := range r.Findings {
		if f := &r.Findings[i]; f.Service != "" {
			k := key{f.Service, f.Family}
			about[k] = append(about[k], i)
		}
	}
	slices.SortFunc(r.Services, func(a, b Service) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Family, b.Family))
	})
	for i := range r.Services {
		s := &r.Services[i]
		s.Verdict = checks.Pass
		for _, n := range about[key{s.Name, s.Family}] {
			s.Findings = append(s.Findings, r.Findings[n].Name)
			s.Verdict = worse(s.Verdict, r.Findings[n].Verdict)
		}
	}
}

// hasProxyChains reports whether kube-proxy left anything in the save.
func hasProxyChains(s *ruleset.Save) bool {
	for _, t := range s.Tables {
		for _, name := range []string{"KUBE-PROXY-CANARY", "KUBE-SERVICES", "KUBE-FORWARD", "KUBE-EXTERNAL-SERVICES", "KUBE-NODEPORTS"} {
			if t.Chain(name) != nil {
				return true
			}
		}
	}
	return hasServices(s)
}

// hasServices reports whether the save has a chain of a Service.
func hasServices(s *ruleset.Save) bool {
	if t := s.Table("nat"); t != nil {
		for _, c := range t.Chains {
			if kind, _ := serviceChain(c.Name); kind == "SVC" || kind == "SVL" {
				return true
			}
		}
	}
	return false
}

// isIPVS reports whether the save has one of the few chains that IPVS mode makes and iptables mode does not.
func isIPVS(s *ruleset.Save) bool {
	t := s.Table("nat")
	return t.Chain("KUBE-NODE-PORT") != nil || t.Chain("KUBE-LOAD-BALANCER") != nil || s.Table("filter").Chain("KUBE-IPVS-FILTER") != nil
}
