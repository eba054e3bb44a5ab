package proxy

import (
	"regexp"
	"strings"

	"nodegate/internal/ruleset"
)

// structural matches the findings that need neither names nor addresses.
var structural = regexp.MustCompile(`^kubeproxy\.(rules|table|chain|jump|canary|backend)\.`)

// redacted returns a rule which shows that names or addresses of the input were replaced, and how it shows it. It reports false if the
// rules cannot be judged at all: those that lead to Services lack the comments that name them. kube-proxy makes the name of each chain from
// a hash of names and addresses. One wrong name may be damage; several were replaced, unless there are right ones.
func (a *audit) redacted() (at *ruleset.Rule, why string, judged bool) {
	for _, t := range a.save.Tables {
		for _, c := range t.Chains {
			for i := range c.Rules {
				r := &c.Rules[i]
				if s := r.Source + r.Destination + r.To; !r.Has(ruleset.Unprintable) && strings.Trim(s, "0123456789abcdefABCDEF.:/-[]%") != "" {
					at, why = r, "an address of this rule was replaced"
				}
			}
		}
	}
	var unnamed, silent []*ruleset.Rule
	named := false
	for _, p := range a.model.Ports {
		switch {
		case p.Portal == nil:
		case p.Named && strings.HasPrefix(p.Portal.Comment, p.Name+" "):
			named = true
		case p.Portal.Comment == "":
			silent = append(silent, p.Portal)
		default:
			unnamed = append(unnamed, p.Portal)
		}
	}
	const wrong = "no chain here has the hash of the names and addresses in its rules"
	switch {
	case !named && len(unnamed) == 0 && len(silent) > 0:
		return silent[0], "the rules lack the comments that name their Services, and were not judged", false
	case at != nil:
	case !named && len(unnamed) > 1:
		at, why = unnamed[0], wrong
	case len(a.model.Replaced) > 1:
		at, why = a.model.Replaced[0], wrong
	}
	return at, why, true
}
