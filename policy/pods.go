package policy

import (
	"path"
	"slices"

	"nodegate/policy/kernels"
)

// NotForPods is the note on a parameter that each Pod has for itself.
const NotForPods = "hostNetwork only: a Pod's network namespace begins with the kernel's default; for Pods write " +
	"securityContext.sysctls, or defaultPodSysctls of kubelet 1.37 (with its feature gate DefaultPodSysctls)"

// IsOwnOfPods reports whether each network namespace has its own value of a parameter, which does not follow the machine's.
func (k Key) IsOwnOfPods() bool {
	named := func(kind string) bool {
		return slices.ContainsFunc(kernels.Rules(kind), func(rule kernels.Rule) bool {
			return slices.ContainsFunc(rule.Words, func(glob string) bool { is, _ := path.Match(glob, string(k)); return is })
		})
	}
	return named("own") && !named("reaches")
}
