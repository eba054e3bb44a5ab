package catalog

import "nodegate/policy"

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
func Known() policy.Options { return policy.Options{Checks: Names(), Renamed: Renamed()} }
