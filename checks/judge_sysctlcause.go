package checks

import (
	"nodegate/policy"
)

// sysctlCause names the policy's own requirement on a parameter, "" where there
// is none: if that fails, the judgement is only its consequence.
func sysctlCause(p *policy.Policy, key string) string {
	for _, s := range p.Sysctls {
		if string(s.Key) == key {
			return "sysctl." + s.Key.String()
		}
	}
	return ""
}
