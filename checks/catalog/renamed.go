package catalog

import (
	"slices"

	"nodegate/checks"
	"nodegate/policy"
)

// Renamed maps the former name of each check to the name that replaced it. Former names keep working in policies, flags and
// snapshots, with a warning.
func Renamed() map[string]string {
	renamed := map[string]string{}
	for _, former := range []string{"cgroups", "crash-loop", "flags", "kubeconfig", "memory-manager", "policy-options", "resources", "state"} {
		renamed["kubelet."+former] = "kubelet.exit" // kubelet itself names the fault
	}
	return renamed
}

// Known returns the names that a policy may use.
func Known() policy.Options {
	o := policy.Options{Renamed: Renamed()}
	for _, p := range Problems() {
		o.Checks = append(o.Checks, p.Name)
		if slices.Contains(p.Stages, checks.Boot) {
			o.AtBoot = append(o.AtBoot, p.Name)
		}
	}
	return o
}
