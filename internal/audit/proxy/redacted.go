package proxy

import (
	"strings"

	"nodegate/internal/ruleset"
)

// redactedRule returns a rule which shows that names or addresses of the input were replaced, and how it shows it. kube-proxy makes the
// name of each chain from a hash of names and addresses. One wrong name may be damage; several were replaced, unless there are right ones.
func (a *audit) redactedRule() (at *ruleset.Rule, why string) {
	if !a.opts.Pasted || a.opts.WithoutServices {
		return nil, ""
	}
	for _, t := range a.save.Tables {
		for _, c := range t.Chains {
			for i := range c.Rules {
				r := &c.Rules[i]
				if s := r.Source + r.Destination + r.To; !r.Has(ruleset.Unprintable) && strings.Trim(s, "0123456789abcdefABCDEF.:/-[]%") != "" {
					return r, "an address of this rule was replaced"
				}
			}
		}
	}
	unnamed := 0
	for _, p := range a.model.Ports {
		switch {
		case p.Portal == nil:
		case p.Named && strings.HasPrefix(p.Portal.Comment, p.Name+" "):
			unnamed = -len(a.model.Ports)
		default:
			at = p.Portal
			unnamed++
		}
	}
	if len(a.model.Replaced) > 1 {
		at, unnamed = a.model.Replaced[0], len(a.model.Replaced)
	}
	if unnamed < 2 {
		return nil, ""
	}
	return at, "no chain here has the hash of the names and addresses in its rules"
}
