package lint

import (
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"nodegate/policy"
)

// Advice returns warnings about parts of a policy that are valid but probably not intended.
func Advice(p *policy.Policy) hcl.Diagnostics {
	const noReason = " blocks kubelet's start without a reason; write one for the operator who finds the node held"
	var all hcl.Diagnostics
	parameters := slices.Concat(p.Sysctls, p.Sysfs)
	add := func(a policy.Metadata, what string) {
		if a.Rank != policy.OfBuiltin {
			all = append(all, &hcl.Diagnostic{Severity: hcl.DiagWarning, Detail: what, Subject: &a.Range})
		}
	}
	for _, m := range p.Modules {
		i := slices.IndexFunc(parameters, func(s policy.Sysctl) bool { return policy.ModuleOf(s.Key) == m.Name && !s.Off })
		asked := slices.ContainsFunc(p.Modules, func(o policy.Module) bool { return o.Name == m.Name && !o.Off })
		if i >= 0 && !asked {
			at := m.Range
			if m.Override.Filename != "" {
				at = m.Override
			}
			add(policy.Metadata{Range: at}, "module "+m.Name+" is switched off, but "+parameters[i].Key.String()+
				" exists only with it: a node without the module is held. Switch off both")
		}
	}
	late := func(m policy.Metadata, what string) {
		for _, fact := range []string{"cni.name", "kube_proxy.mode"} {
			if m.Severity == policy.Block && slices.Contains(strings.Split(m.Unknown, ", "), fact) {
				add(m, what+" depends on "+fact+", which is unknown on a new node until kubelet has run: the gate would hold kubelet for ever. "+
					"Write severity = \"warn\", unless the image contains the configuration that the fact is read from")
			}
		}
	}
	for _, s := range parameters {
		late(s.Metadata, s.Key.String())
	}
	for _, m := range p.Modules {
		if !slices.ContainsFunc(parameters, func(s policy.Sysctl) bool { return s.Range == m.Range }) { // otherwise reported above
			late(m.Metadata, "module "+m.Name)
		}
	}
	for _, l := range p.Links {
		late(l.Metadata, "link "+l.Name)
	}
	for _, s := range parameters {
		if s.Reason == "" && s.Severity == policy.Block && !s.Off {
			add(s.Metadata, s.Key.String()+noReason)
		}
	}
	for _, l := range p.Links {
		if l.Match == (policy.Match{Name: "*"}) {
			add(l.Metadata, "link "+l.Name+" matches every interface, including the veths of Pods")
		}
		if l.Severity == policy.Block && l.Reason == "" {
			add(l.Metadata, "link "+l.Name+noReason)
		}
	}
	if len(p.Modules)+len(parameters)+len(p.Links)+len(p.Problems)+len(p.Execs)+len(p.Probes) == 0 && !p.Audit.On && len(p.Files) > 0 {
		add(policy.Metadata{Range: hcl.Range{Filename: p.Files[0], Start: hcl.InitialPos}},
			"the policy requires nothing, so every node passes. Start with: use \"kubernetes\" {}")
	}
	if p.Gate.OnTimeout == policy.Release && !p.Gate.Repair {
		add(policy.Metadata{Range: p.Gate.Range}, "the gate neither repairs the node nor holds kubelet: it only delays kubelet's start")
	}
	return all
}
