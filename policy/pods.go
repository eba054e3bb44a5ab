package policy

import (
	"path"
	"regexp"
	"slices"
	"strings"

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

// checkPods warns if a block's reason is about Pods, and they do not have the parameter's value.
func (r *reader) checkPods(s Sysctl, b block) {
	if r.catalogue == nil || b.isBuiltin() || !strings.HasPrefix(string(s.Key), "net/") || s.Reason+s.Symptom == "" || !s.Key.IsOwnOfPods() {
		return
	}
	for name, text := range map[string]string{"reason": s.Reason, "symptom": s.Symptom} {
		pods := regexp.MustCompile(`(?i)\b(pods?|containers?)\b`).MatchString(text)
		if pods && !regexp.MustCompile(`(?i)host.?network`).MatchString(text) {
			r.warnf(b.at(name), "Not for Pods", "%s does not reach Pods (%s). If it is for programs of the machine, write that as the %s.", s.Key,
				NotForPods, name)
		}
	}
}
