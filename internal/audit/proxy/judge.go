// Package proxy judges the rules that kube-proxy wrote on a node.
//
// It is a pure library: its input are rules, its output are findings. It opens no files, runs no
// programs and changes nothing. It converts the rules of iptables mode (either backend, 1.25 to
// 1.37) and of nftables mode (1.30 to 1.37) into one graph of Services, chains and endpoints.
// [Judge] compares the rules with kube-proxy's own invariants and, if it gets EndpointSlices, with
// the API. One cause gives one finding: the consequences of a broken chain are not reported again.
//
// The form of the rules was derived from kube-proxy's source (pkg/proxy/iptables, pkg/proxy/nftables, pkg/proxy/topology.go).
package proxy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"nodegate/internal/audit/model"
	"nodegate/internal/ruleset"
	"nodegate/internal/sorted"
	"nodegate/internal/verdict"
)

// Options holds the facts that are known in addition to the rules. All fields are optional: unknown facts are judged leniently.
type Options struct {
	BeLiberal *bool      // net.netfilter.nf_conntrack_tcp_be_liberal is not 0; nil if unknown
	Services  *Services  // the API's Services; nil if only the rules are known
	Endpoints *Endpoints // the API's EndpointSlices; nil to compare the Services alone
	NodeName  string     // for local endpoints

	// WithoutServices skips the Services. The other findings do not depend on them.
	WithoutServices bool

	NodePortAddresses *bool          // kube-proxy is configured to serve node ports only at some addresses; nil if unknown
	ExcludeCIDRs      []netip.Prefix // in which kube-proxy does not touch IPVS virtual servers (ipvs.excludeCIDRs)

	// Pasted: the rules are a text, in which people may have replaced names and addresses.
	Pasted bool

	Live
}

// Live has facts about a live kube-proxy that its rules do not show. It is zero if only the rules are known.
type Live struct {
	// NoExternalIPs: kube-proxy is configured to serve no externalIPs (AllowServiceExternalIPs=false, 1.36). It still writes their chains,
	// but no jump to them (ExternallyAccessible and ExternalIPs of pkg/proxy/serviceport.go).
	NoExternalIPs bool

	// Wrote reports whether kube-proxy's metrics show that it has written the rules of a family
	// since it started. known is false if the metrics do not show it.
	Wrote func(family string) (wrote, known bool)
}

// Judge compares the rules with kube-proxy's invariants and, with Options.Services, with the API.
// Several sets are several readings of one node: one report covers both iptables backends and nft.
func Judge(sets []*ruleset.Set, opts Options) Judgment {
	out := NewCollector()
	rep := Judgment{Services: []Service{}, Findings: []Finding{}, Families: map[string]bool{}, NodePorts: map[string]bool{},
		HostPorts: ruleset.HostPorts(sets), filtered: map[string]bool{}, hairpins: map[string]map[string]bool{}}
	nft := map[string]bool{} // families with a table of nftables mode
	for _, set := range sets {
		if set.IPVS != nil {
			rep.ipvs = newIPVS(set.IPVS)
			rep.ipvs.excludeCIDRs = opts.ExcludeCIDRs
		}
		for _, t := range set.NFT {
			nft[t.Family] = true
		}
	}
	for _, set := range sets {
		if set.Note != "" {
			rep.Notes = append(rep.Notes, set.Note)
		}
		for _, s := range set.Saves {
			if !nft[s.Family] || !cleanedUp(s) {
				rep.judgeSave(s, &opts, out)
			}
		}
	}
	for _, set := range sets {
		for _, t := range set.NFT {
			rep.judgeNFT(t, &opts, out)
		}
	}
	if rep.Mode == "" {
		out.Add(Finding{Name: "kubeproxy.rules.absent"})
	}
	judgeBackends(sets, out)
	rep.settleIPVS(out)
	compareAPI(&rep, &opts, out.List, out)
	rep.Findings = append(rep.Findings, out.List...)
	rep.finish()
	return rep
}

func (r *Judgment) judgeSave(s *ruleset.Save, opts *Options, out *Collector) {
	switch {
	case isIPVS(s):
		r.Mode = "ipvs"
		r.judgeIPVS(s, opts, out)
	case hasProxyChains(s) && isPartial(s) != nil:
		r.Mode = "iptables"
		at := isPartial(s)
		out.Add(Finding{Name: partial, Family: s.Family, Line: int(at.Line), Rule: at.Text,
			Message: "a rule belongs to a chain, or jumps to one, that the save does not declare: it is only a part of the rules, " +
				"and was not judged"})
	case hasProxyChains(s):
		r.Mode = "iptables"
		a := newAudit(s, opts, out)
		notes, found := a.judge()
		if !a.unjudged {
			r.Families[s.Family] = true
		}
		r.Notes = append(r.Notes, notes...)
		r.Version = r.Version.narrow(a.version)
		if found && !opts.WithoutServices {
			r.Services = append(r.Services, a.services()...)
			r.NodePorts[s.Family] = a.nodePorts
			r.filtered[s.Family] = a.filter != nil
		}
	}
}

// finish sorts the Services and derives the verdict of each from its findings. It drops unused chains of a Service that
// has a failure: they are a symptom.
func (r *Judgment) finish() {
	about, failed := map[ServicePort][]*Finding{}, map[ServicePort]bool{}
	for i := range r.Findings {
		f := &r.Findings[i]
		failed[PortOf(f)] = failed[PortOf(f)] || f.Service != "" && f.Verdict == verdict.Fail
	}
	r.Findings = slices.DeleteFunc(r.Findings, func(f Finding) bool {
		return f.Name == "kubeproxy.chain.unreferenced" && failed[PortOf(&f)]
	})
	for i := range r.Findings {
		if f := &r.Findings[i]; f.Service != "" {
			about[PortOf(f)] = append(about[PortOf(f)], f)
		}
	}
	sorted.By(r.Services, func(a, b Service) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Family, b.Family))
	})
	for i := range r.Services {
		s := &r.Services[i]
		s.Verdict = verdict.Pass
		for _, f := range about[ServicePort{s.Name, s.Family}] {
			s.Findings = append(s.Findings, f.Name)
			s.Verdict = verdict.Worse(s.Verdict, f.Verdict)
		}
	}
}

// hasProxyChains reports whether the save has any chain of kube-proxy.
func hasProxyChains(s *ruleset.Save) bool {
	return slices.ContainsFunc(s.Tables, func(t *ruleset.Table) bool {
		return t.Chain("KUBE-PROXY-CANARY") != nil || slices.ContainsFunc(t.Chains, isProxyChain)
	})
}

// isProxyChain reports whether a chain belongs to iptables mode of kube-proxy, and does not stay when kube-proxy changes to another mode.
func isProxyChain(c *ruleset.Chain) bool {
	switch c.Name {
	case "KUBE-SERVICES", "KUBE-FORWARD", "KUBE-EXTERNAL-SERVICES", "KUBE-NODEPORTS":
		return true
	}
	kind, _ := model.ServiceChain(c.Name)
	return kind != ""
}

// cleanedUp reports whether a save contains no more than the remains of iptables mode after kube-proxy (until 1.33) changed to nftables
// mode: its canaries, KUBE-MARK-MASQ and an empty KUBE-PROXY-FIREWALL (CleanupLeftovers of pkg/proxy/iptables). Without nftables mode,
// these are the remains of a flush.
func cleanedUp(s *ruleset.Save) bool {
	return !isIPVS(s) && !hasProxyRules(s.Table("nat")) && !hasProxyRules(s.Table("filter"))
}

// hasServices reports whether the save has a chain of a Service.
func hasServices(s *ruleset.Save) bool {
	if t := s.Table("nat"); t != nil {
		for _, c := range t.Chains {
			if kind, _ := model.ServiceChain(c.Name); kind == "SVC" || kind == "SVL" {
				return true
			}
		}
	}
	return false
}

// isIPVS reports whether the save has one of the few chains that only IPVS mode creates.
func isIPVS(s *ruleset.Save) bool {
	t, sets := s.Table("nat"), false
	for r := range t.Rules("KUBE-SERVICES") {
		sets = sets || r.Has(ruleset.BySet) // only IPVS mode dispatches by ipsets
	}
	for _, c := range []*ruleset.Chain{t.Chain("KUBE-NODE-PORT"), t.Chain("KUBE-LOAD-BALANCER"), s.Table("filter").Chain("KUBE-IPVS-FILTER")} {
		if c != nil && (len(c.Rules) > 0 || c.Refs > 0 || sets || !hasServices(s)) { // an empty one beside Services is left over
			return true
		}
	}
	return false
}

// isPartial returns a rule whose chain, or whose target chain of kube-proxy, the save does not declare. No kernel can hold such a rule.
func isPartial(s *ruleset.Save) *ruleset.Rule {
	for _, t := range s.Tables {
		for _, c := range t.Chains {
			for i := 0; i < len(c.Rules) && (!c.Declared() || c.Lost > 0); i++ {
				if r := &c.Rules[i]; !c.Declared() || r.Jump == 0 && strings.HasPrefix(r.Target, "KUBE-") {
					return r
				}
			}
		}
	}
	return nil
}

// judgeBackends reports Service chains in several backends of one family, and a kubelet that uses another backend than kube-proxy, if each
// uses one (kubernetes#109811). Two saves of one backend are a duplicate reading and not a finding. Without a header, the backend of a
// save is unknown.
func judgeBackends(sets []*ruleset.Set, out *Collector) {
	for _, family := range []string{ruleset.IPv4, ruleset.IPv6} {
		var services, proxy, kubelet []string // proxy, kubelet: iptables backends
		for _, set := range sets {
			for _, s := range set.Saves {
				if s.Family != family {
					continue
				}
				if mangle := s.Table("mangle"); mangle.Declares("KUBE-IPTABLES-HINT") || mangle.Declares("KUBE-KUBELET-CANARY") {
					kubelet = append(kubelet, s.Backend)
				}
				if !hasServices(s) || isIPVS(s) {
					continue
				}
				if proxy = append(proxy, s.Backend); s.Backend == "" {
					services = append(services, "a save without a header")
				} else {
					services = appendNew(services, s.Backend)
				}
			}
			for _, t := range set.NFT {
				if t.Family == family {
					services = appendNew(services, "nftables")
				}
			}
		}
		remedy, count, all := "", "two", "both" // "": the kind's
		if slices.Contains(services, "nftables") {
			remedy = otherMode
		}
		if len(services) > 2 {
			count, all = strconv.Itoa(len(services)), "all"
		}
		if len(services) > 1 {
			out.Add(Finding{Name: "kubeproxy.backend.mixed", Family: family, Remedy: remedy,
				Message: fmt.Sprintf("Service chains in %s backends: %s; each packet passes %s", count, strings.Join(services, " and "), all)})
		}
		if by, of := oneBackend(proxy), oneBackend(kubelet); by != "" && of != "" && by != of {
			out.Add(Finding{Name: "kubeproxy.backend.kubelet", Family: family, Table: "mangle",
				Message: fmt.Sprintf("kube-proxy uses iptables-%s; kubelet's chain KUBE-IPTABLES-HINT is only in the other backend", by)})
		}
	}
}

// oneBackend returns the only known backend, or "".
func oneBackend(names []string) string {
	slices.Sort(names)
	if names = slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == "" }); len(names) == 1 {
		return names[0]
	}
	return ""
}
