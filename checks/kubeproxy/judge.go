package kubeproxy

import (
	"cmp"
	"fmt"
	"slices"
)

// Options say what is known beside the rules. The zero value is fine: what is unknown is judged leniently.
type Options struct {
	BeLiberal *bool      // net.netfilter.nf_conntrack_tcp_be_liberal is not 0; nil when unknown
	Endpoints *Endpoints // the API's EndpointSlices; nil: not compared
	Services  *Services  // the API's Services; nil: Services known only from the rules
	NodeName  string     // for local endpoints and node hints
	Zone      string     // for zone hints
}

// Judge holds the rules against kube-proxy's invariants and, with Options.Endpoints, against the API.
func Judge(rs *Ruleset, opts Options) Report {
	if rs == nil {
		rs = &Ruleset{}
	}
	out := newCollector()
	rep := Report{Services: []Service{}, Findings: []Finding{}, families: map[string]bool{}}
	var backends []string
	for _, s := range rs.saves {
		if s.ipvs() {
			rep.Mode = "ipvs"
			out.add(Finding{Name: "kubeproxy.mode.ipvs", Family: s.family})
			continue
		}
		if !s.kubeProxy() {
			continue
		}
		rep.Mode = "iptables"
		rep.families[s.family] = true
		a := newAudit(s, &opts, out)
		a.judge()
		rep.Version = rep.Version.narrow(a.version)
		rep.Services = append(rep.Services, a.services()...)
		if s.holdsServices() {
			backends = append(backends, s.family+" "+s.backend)
		}
	}
	for _, t := range rs.nft {
		if t.name != nftTableName {
			continue
		}
		rep.Mode = "nftables"
		rep.families[t.family] = true
		a := newNFTAudit(t, out)
		a.judge()
		rep.Version = rep.Version.narrow(a.version)
		rep.Services = append(rep.Services, a.services()...)
		backends = append(backends, t.family+" nftables")
	}
	if rep.Mode == "" {
		f := Finding{Name: "kubeproxy.rules.absent"}
		if len(rs.leftover) > 0 {
			f.Message = "the listing shows iptables rules of kube-proxy through nft, which cannot print their matches; give iptables-nft-save instead"
		}
		out.add(f)
	}
	judgeBackends(rs, backends, out)
	judgeKubelet(rs, out)
	if opts.Endpoints != nil || opts.Services != nil {
		compare(&rep, &opts, out)
	}
	rep.Findings = append(rep.Findings, out.list...)
	rep.settle()
	return rep
}

// judgeKubelet compares the backend of kubelet, which leaves a hint in mangle for others, with that of kube-proxy.
func judgeKubelet(rs *Ruleset, out *collector) {
	for _, family := range []string{familyIPv4, familyIPv6} {
		kubelet, proxy := map[string]bool{}, map[string]bool{}
		for _, s := range rs.saves {
			if s.family != family || s.backend == "" {
				continue
			}
			mangle := s.table("mangle")
			if mangle.declared("KUBE-IPTABLES-HINT") || mangle.declared("KUBE-KUBELET-CANARY") {
				kubelet[s.backend] = true
			}
			if s.holdsServices() {
				proxy[s.backend] = true
			}
		}
		for backend := range proxy {
			if len(kubelet) == 1 && len(proxy) == 1 && !kubelet[backend] {
				out.add(Finding{Name: "kubeproxy.backend.kubelet", Family: family, Table: "mangle",
					Message: fmt.Sprintf("kube-proxy writes its rules by iptables-%s; kubelet's hint stands only in the other backend", backend)})
			}
		}
	}
}

// judgeBackends reports KUBE-SVC chains in two backends of one family (kubernetes#109811).
func judgeBackends(rs *Ruleset, backends []string, out *collector) {
	for _, family := range []string{familyIPv4, familyIPv6} {
		var seen []string
		for _, b := range backends {
			if len(b) > len(family) && b[:len(family)+1] == family+" " {
				seen = append(seen, b[len(family)+1:])
			}
		}
		if n := rs.leftover[family]; n > 0 {
			nft := false
			for _, b := range seen {
				nft = nft || b == "nftables"
			}
			if nft {
				seen = append(seen, fmt.Sprintf("iptables-nft (%d Service chains)", n))
			}
		}
		for i := 1; i < len(seen); i++ {
			if seen[i] == seen[0] && seen[0] != "" {
				continue // two saves of one backend
			}
			out.add(Finding{Name: "kubeproxy.backend.mixed", Family: family,
				Message: fmt.Sprintf("Service chains in two backends: %s and %s; the packet sees both", named(seen[0]), named(seen[i]))})
			break
		}
	}
}

func named(backend string) string {
	if backend == "" {
		return "a save without a header"
	}
	return backend
}

// settle sorts the Services and gives each its verdict from the findings about it.
func (r *Report) settle() {
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
		s.Verdict = Pass
		for _, n := range about[key{s.Name, s.Family}] {
			s.Findings = append(s.Findings, r.Findings[n].Name)
			s.Verdict = worse(s.Verdict, r.Findings[n].Verdict)
		}
	}
}

// kubeProxy reports whether kube-proxy left anything in the save.
func (s *save) kubeProxy() bool {
	for _, t := range s.tables {
		for _, name := range []string{"KUBE-PROXY-CANARY", "KUBE-SERVICES", "KUBE-FORWARD", "KUBE-EXTERNAL-SERVICES", "KUBE-NODEPORTS"} {
			if t.chain(name) != nil {
				return true
			}
		}
	}
	return s.holdsServices()
}

func (s *save) holdsServices() bool {
	t := s.table("nat")
	if t == nil {
		return false
	}
	for _, c := range t.order {
		if kind, _ := serviceChain(c.name); kind == "SVC" || kind == "SVL" {
			return true
		}
	}
	return false
}

// ipvs reports the few chains that IPVS mode makes and iptables mode does not.
func (s *save) ipvs() bool {
	t := s.table("nat")
	return t.chain("KUBE-NODE-PORT") != nil || t.chain("KUBE-LOAD-BALANCER") != nil || s.table("filter").chain("KUBE-IPVS-FILTER") != nil
}
