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
	const wrong = "no chain here has the hash of the names and addresses in its rules"
	named, unnamed, silent := 0, 0, 0
	for _, p := range a.model.Ports {
		switch {
		case p.Portal == nil:
		case p.Named && strings.HasPrefix(p.Portal.Comment, p.Name+" "):
			named++
		case p.Portal.Comment == "":
			silent++
			at, why = p.Portal, "the rules lack the comments that name their Services, and were not judged"
		default:
			if unnamed++; unnamed > 1 {
				at, why = p.Portal, wrong
			}
		}
	}
	if named+unnamed == 0 && silent > 0 {
		return at, why, false
	}
	if named > 0 && why == wrong {
		at = nil
	}
	if len(a.model.Replaced) > 1 && at == nil {
		at, why = a.model.Replaced[0], wrong
	}
	return at, why, true
}
