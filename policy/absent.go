package policy

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"nodegate/policy/kernels"
)

// checkAbsent reports a module that must not load although something in the policy needs it.
func (p *Policy) checkAbsent(r *reader) {
	for _, m := range p.Modules {
		if !m.Absent || !m.Applies() {
			continue
		}
		for _, s := range slices.Concat(p.Sysctls, p.Sysfs) {
			if s.Applies() && ModuleOf(s.Key) == m.Name {
				at, remedy := s.Range, "Remove one of the two."
				if s.Rank == ofBuiltin {
					at, remedy = m.at(), fmt.Sprintf("Write too: override %q { when = false }", s.Key.CheckName())
				}
				r.errorf(at, "Contradiction", "%s (%s) exists only with module %s, which must not load at %s. %s", s.Key, place(s.Range), m.Name,
					place(m.at()), remedy)
			}
		}
		if r.catalogue != nil {
			p.checkNeeded(r, m)
		}
	}
}

// at returns the position of the requirement, or of the override that changed it.
func (m Metadata) at() hcl.Range {
	if m.Override.Filename != "" {
		return m.Override
	}
	return m.Range
}

// checkNeeded reports the first module or link of the policy that an absent module prevents, or that kube-proxy and the CNI would lack it.
func (p *Policy) checkNeeded(r *reader, absent Module) {
	for _, o := range p.Modules {
		if o.Applies() && !o.Absent && needsModule(r.catalogue, o.Name, absent.Name) {
			r.errorf(absent.at(), "Contradiction", "Module %s must not load, but module %s at %s needs it and would not load either. "+
				"Remove one of the two.", absent.Name, o.Name, place(o.Range))
			return
		}
	}
	for _, l := range p.Links {
		if l.Applies() && l.Match.Kind != "" && kindModule(l.Match.Kind) == absent.Name {
			r.errorf(absent.Range, "Contradiction", "Module %s must not load, but it creates the links of kind %s, which link %q at %s sets. "+
				"Remove one of the two.", absent.Name, l.Match.Kind, l.Name, place(l.Range))
			return
		}
	}
	switch uses := p.uses; {
	case (uses("kube-proxy-iptables") || uses("kube-proxy-ipvs")) && inProxyRules(absent.Name):
		r.errorf(absent.Range, "Contradiction", "Module %s must not load, but kube-proxy's rules need it in the mode that the policy uses. "+
			"Remove the block.", absent.Name)
	case !uses("kubernetes"):
	case absent.Name == "veth":
		r.warnf(absent.Range, "Needed by Pods", "Most CNIs connect each Pod by a veth link, which needs module veth. Remove the block, unless "+
			"yours does not.")
	case !uses("kube-proxy-nftables") && (inProxyRules(absent.Name) || absent.Name == "ip_tables" || absent.Name == "iptable_nat"):
		r.warnf(absent.Range, "Needed by kube-proxy", "Without module %s, kube-proxy in iptables mode, its default, may not write its rules. "+
			"Remove the block, or write use \"kube-proxy-nftables\" {} if it runs in nftables mode.", absent.Name)
	}
	for _, rule := range kernels.About("absent", absent.Name) {
		if !r.isAllowed(absent.Name) {
			r.warnf(absent.Range, "Needed by nodes", "%s: %s. Remove the block, unless your machines do not.", absent.Name, rule.Effect)
		}
	}
}

// uses reports whether the policy uses a built-in one.
func (p *Policy) uses(name string) bool { return slices.Contains(p.Files, "builtin:"+name+".hcl") }

// inProxyRules reports whether kube-proxy's rules in iptables and ipvs mode use a match or target, with either backend of iptables
// (pkg/proxy/iptables/proxier.go).
func inProxyRules(module string) bool {
	return slices.Contains([]string{"x_tables", "xt_comment", "xt_conntrack", "xt_mark", "xt_addrtype", "nf_nat", "nf_conntrack"}, module)
}

// needsModule reports whether a module cannot load without another one.
func needsModule(catalogue *kernels.Catalogue, name, other string) bool {
	if name != other && catalogue.Needs(name, other) {
		return true
	}
	for _, d := range directNeeds(name) {
		if d == other || d != name && needsModule(catalogue, d, other) {
			return true
		}
	}
	return false
}

// directNeeds returns modules that another one cannot load without.
func directNeeds(name string) (all []string) {
	for _, rule := range kernels.Rules("needs") {
		if is, _ := path.Match(rule.Words[0], name); is {
			all = append(all, rule.Words[1:]...)
		}
	}
	return all
}

// kindModule returns the module that creates links of a kind.
func kindModule(kind string) string {
	if kind == "vlan" {
		return "8021q"
	}
	if kind == "bond" {
		return "bonding"
	}
	return kind
}

// checkModuleOption reports an option that nf_conntrack does not have, or a value that it rounds: the module would never show it.
// Source: net/netfilter/nf_conntrack_core.c and nf_conntrack_standalone.c, Linux 4.19 to 6.12.
func (r *reader) checkModuleOption(module string, o ModuleOption, at hcl.Range) {
	if r.catalogue == nil || module != "nf_conntrack" || len(r.unknown) > 0 {
		return
	}
	types := map[string]string{
		"hashsize": "number", "expect_hashsize": "number", "acct": "bool", "tstamp": "bool", "nf_conntrack_helper": "bool",
		"enable_hooks": "bool",
	}
	n, number := parseNumber(o.Value)
	switch types[o.Name] {
	case "":
		if r.names {
			known := slices.Sorted(maps.Keys(types))
			r.warnf(at, "Unknown parameter", "nf_conntrack has no parameter %q; it has %s.%s", o.Name, strings.Join(known, ", "),
				didYouMean(o.Name, known))
		}
	case "bool":
		if !slices.Contains([]string{"0", "1", "y", "n", "Y", "N"}, o.Value) {
			r.errorf(at, "Wrong value", "%s of nf_conntrack takes true or false, not %q.", o.Name, o.Value)
		}
	default:
		if !number || n <= 0 {
			r.errorf(at, "Wrong value", "%s of nf_conntrack takes a number of at least 1, not %q.", o.Name, o.Value)
			return
		}
		for _, d := range r.catalogue.Domains(map[string]string{"hashsize": "net/netfilter/nf_conntrack_buckets"}[o.Name]) {
			if answer, stored := d.Stores(o.Value); answer == kernels.Rounded && stored != "" {
				r.errorf(at, "Rounded by the kernel", "hashsize = %s: stored as %s by Linux %s, so this would never pass. Write %[2]s.",
					o.Value, stored, d.Version)
				return
			}
		}
	}
}
