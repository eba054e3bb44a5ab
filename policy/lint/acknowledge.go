package lint

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"nodegate/policy"
)

// readLint reads the lint blocks. allow_names lists names of modules, parameters, drivers and kinds of links that the catalogue of kernels
// lacks and that the author knows to be right; allow lists warnings, each with the block that it is about.
func (r *reading) readLint() {
	for _, b := range r.blocks {
		if b.Type != "lint" {
			continue
		}
		for _, name := range r.globs(b, "allow_names", "names and globs: allow_names = [\"my_module\", \"net.mine.*\"].") {
			r.allowed = append(r.allowed, comparableName(name))
		}
		for _, entry := range r.globs(b, "allow", "warnings and names: allow = [\"harmful-value:net.ipv4.tcp_fin_timeout\"].") {
			rule, name, named := strings.Cut(entry, ":")
			if !named || name == "" || rule != policy.RuleID(rule) {
				r.errorf(b.At("allow"), "Not a warning", "%q must be the id of a warning, as `nodegate lint` prints it in brackets, a colon, and the "+
					"name of a block: \"harmful-value:net.ipv4.tcp_fin_timeout\".", entry)
			}
			r.acknowledged = append(r.acknowledged, [2]string{rule, name})
		}
	}
}

// globs reads an attribute that is a list of globs.
func (r *reading) globs(b policy.Stanza, attribute, like string) (all []string) {
	v, ok, diags := r.Value(b.Get(attribute), nil)
	r.diags = append(r.diags, diags...)
	if !ok {
		return nil
	}
	list, err := convert.Convert(v, cty.List(cty.String))
	if err != nil || list.IsNull() || !list.IsWhollyKnown() {
		r.errorf(b.At(attribute), "Wrong type", "%s must be a list of %s", attribute, like)
		return nil
	}
	for _, glob := range list.AsValueSlice() {
		if glob.IsNull() {
			continue
		}
		if _, err := path.Match(comparableName(glob.AsString()), ""); err != nil {
			r.errorf(b.At(attribute), "Not a glob", "%q is not a valid pattern: close the bracket.", glob.AsString())
		}
		all = append(all, glob.AsString())
	}
	return all
}

// acknowledge removes the warnings that a lint block allows.
func (l *linter) acknowledge(diags hcl.Diagnostics) hcl.Diagnostics {
	return slices.DeleteFunc(diags, func(d *hcl.Diagnostic) bool {
		about := func(b policy.Stanza) bool {
			return contains(b, d.Subject) && slices.ContainsFunc(l.acknowledged, func(a [2]string) bool {
				is, _ := path.Match(comparableName(a[1]), comparableName(cmp.Or(b.Name, b.Type)))
				return a[0] == policy.RuleID(d.Summary) && (is || policy.CanonicalName(a[1]) == b.CheckName())
			})
		}
		return d.Severity == hcl.DiagWarning && slices.ContainsFunc(l.blocks, about)
	})
}

// ifWanted ends the message of a warning that is about a wish.
func ifWanted(summary string, key fmt.Stringer) string {
	return fmt.Sprintf(" If you want that, add: lint { allow = [%q] }", policy.RuleID(summary)+":"+key.String())
}

// comparableName returns one spelling for the names that mean the same module or parameter.
func comparableName(name string) string {
	if strings.ContainsAny(name, "./") {
		if key, err := policy.ParseKey(name); err == nil {
			return string(key)
		}
	}
	return strings.ReplaceAll(name, "-", "_")
}

// isAllowed reports whether allow_names has the name.
func (l *linter) isAllowed(name string) bool {
	return slices.ContainsFunc(l.allowed, func(glob string) bool {
		matches, _ := path.Match(glob, comparableName(name))
		return matches
	})
}

// isForOthers reports whether the block's when is false on Debian, whose kernels the catalogue knows, because of os.id. Its names
// and values belong to another distribution.
func (l *linter) isForOthers(b policy.Stanza) bool {
	is, known, _ := l.Value(b.Get("when"), from(map[string]any{"os.id": "debian"}))
	return known && is.Type() == cty.Bool && is.False()
}
