package policy

import (
	"fmt"
	"slices"

	"github.com/hashicorp/hcl/v2"
)

// checkGlob judges a value for each recorded parameter that a glob matches. It returns one message, which names the first parameters for
// which the value is wrong, or nil.
func (v *survey) checkGlob(b block, glob Key) *hcl.Diagnostic {
	var worst *hcl.Diagnostic
	var names []string
	all := v.askedOn(b)
	matches := v.catalogue.Matching(string(glob))
	for _, match := range matches {
		r := &reader{}
		for _, a := range all {
			a.key = Key(match)
			v.judge(r, b, a)
		}
		if found := v.memoryOf(b, Key(match)); found != nil {
			r.warnings = append(r.warnings, found)
		}
		found := slices.Concat(r.diags, r.warnings)
		if len(found) == 0 {
			continue
		}
		first := found[0]
		if i := slices.IndexFunc(found, func(d *hcl.Diagnostic) bool { return d.Severity == hcl.DiagError }); i >= 0 {
			first = found[i]
		}
		if worst == nil || first.Severity == hcl.DiagError && worst.Severity != hcl.DiagError {
			worst, names = first, nil // errors only, if there are any
		}
		if first.Severity == worst.Severity {
			names = append(names, Key(match).String())
		}
	}
	if worst == nil {
		return nil
	}
	of := names
	if len(names) > 4 {
		of = append(slices.Clone(names[:3]), fmt.Sprintf("%d more", len(names)-3))
	}
	worst.Detail = fmt.Sprintf("%s matches %s, and this value is wrong for %s. %s",
		glob, countParameters(len(matches)), inWords(of), worst.Detail)
	return worst
}

func countParameters(n int) string {
	if n == 1 {
		return "1 recorded parameter"
	}
	return fmt.Sprintf("%d recorded parameters", n)
}
