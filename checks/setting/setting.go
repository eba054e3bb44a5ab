// Package setting implements the requirements of a policy's blocks: modules, kernel parameters,
// link settings and probes.
package setting

import (
	"nodegate/checks"
	"nodegate/policy"
)

// Installed returns the modules of a policy as requirements of a file tree.
func Installed(p *policy.Policy) []checks.Check {
	var list []checks.Check
	for _, m := range p.EachModule() {
		list = append(list, installedModule{m})
	}
	return list
}

// Running returns the settings of a policy as requirements of a running machine.
// Modules come first, because the parameters of some appear only with them.
func Running(p *policy.Policy) []checks.Check {
	var list []checks.Check
	for _, m := range p.EachModule() {
		list = append(list, loadedModule{m})
	}
	modules := p.ModuleNames()
	for _, s := range p.EachSysctl() {
		list = append(list, sysctl{s, modules, contradictingSysctls(p, s)})
	}
	for _, l := range newLinks(p) {
		list = append(list, l)
	}
	return list
}

// Probes returns the probes of a policy at a stage. A Service has kube-proxy's rules only on a running node.
func Probes(p *policy.Policy, stage checks.Stage) []checks.Check {
	var list []checks.Check
	for _, pr := range p.EachProbe() {
		switch {
		case pr.Name != policy.Service:
			list = append(list, scratchProbe{probe{pr}})
		case stage != checks.Boot:
			list = append(list, probe{pr})
		}
	}
	return list
}
