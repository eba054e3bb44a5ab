package checks

import "nodegate/policy"

// For is the checks of a policy at a stage, in the order in which they depend
// on each other: modules, then the sysctls that some of them bring, then links, then the
// judgements that only look, and last the probes, which need all of it.
func For(p *policy.Policy, stage Stage) []Check {
	var list []Check
	if stage == Image || stage == All {
		for _, m := range p.Modules {
			list = append(list, installedModule{m})
		}
	}
	if stage == Image {
		return append(list, problemsFor(p, stage)...)
	}
	var names []string
	for _, m := range p.Modules {
		if m.Applies() {
			names = append(names, m.Name)
		}
	}
	for _, m := range p.Modules {
		list = append(list, loadedModule{m, names})
	}
	for _, s := range p.Sysctls {
		list = append(list, sysctl{s, policy.ModuleOf(s.Key)})
	}
	for _, l := range p.Links {
		list = append(list, link{l})
	}
	list = append(list, problemsFor(p, stage)...)
	for _, pr := range p.Probes {
		list = append(list, probe{pr})
	}
	return list
}
