// Package catalog is the only list of all requirements and problems.
package catalog

import (
	"slices"

	"nodegate/checks"
	"nodegate/checks/conntrack"
	"nodegate/checks/image"
	"nodegate/checks/kubelet"
	"nodegate/checks/kubeproxy"
	"nodegate/checks/links"
	"nodegate/checks/packetfilter"
	"nodegate/checks/setting"
	"nodegate/checks/writers"
	"nodegate/policy"
)

// For returns the checks of a policy at a stage, in the order in which they depend on each other:
// modules, the sysctls that some modules provide, links, then the problems, which only read, the programs of the policy, and
// last the probes, which need all of them.
func For(p *policy.Policy, stage checks.Stage) []checks.Check {
	problems := checks.Asked(Problems(), p, stage)
	switch stage {
	case checks.Image:
		return slices.Concat(setting.Installed(p), problems, setting.InstalledPrograms(p))
	case checks.All:
		return slices.Concat(setting.Installed(p), setting.Running(p), problems, setting.Programs(p, stage), setting.Probes(p, stage))
	}
	return slices.Concat(setting.Running(p), problems, setting.Programs(p, stage), setting.Probes(p, stage))
}

// Problems returns every problem, by subject, in the order in which they run.
func Problems() []checks.Problem {
	return slices.Concat(image.Problems(), writers.Problems(), kubelet.Problems(), links.Problems(), conntrack.Problems(),
		packetfilter.Problems(), kubeproxy.Problems())
}
