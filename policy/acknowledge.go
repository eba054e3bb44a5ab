package policy

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
)

// readLint reads the lint blocks. allow_names lists names of modules, parameters, drivers and kinds of links that the catalogue of kernels
// lacks and that the author knows to be right; allow lists warnings, each with the block that it is about.
func (l *loader) readLint() {
	l.blocks = slices.DeleteFunc(l.blocks, func(b block) bool {
		if b.Type != "lint" {
			return false
		}
		l.acknowledging = append(l.acknowledging, b.expressions()...)
		for _, name := range l.globs(b, "allow_names", "names and globs: allow_names = [\"my_module\", \"net.mine.*\"].") {
			l.allowed = append(l.allowed, comparableName(name))
		}
		for _, entry := range l.globs(b, "allow", "warnings and names: allow = [\"harmful-value:net.ipv4.tcp_fin_timeout\"].") {
			rule, name, named := strings.Cut(entry, ":")
			if !named || name == "" || rule != RuleID(rule) {
				l.errorf(b.at("allow"), "Not a warning", "%q must be the id of a warning, as `nodegate lint` prints it in brackets, a colon, and the "+
					"name of a block: \"harmful-value:net.ipv4.tcp_fin_timeout\".", entry)
			}
			l.acknowledged = append(l.acknowledged, [2]string{rule, name})
		}
		return true
	})
}

// globs reads an attribute that is a list of globs.
func (l *loader) globs(b block, attribute, like string) (all []string) {
	v, ok := l.value(b.get(attribute))
	if !ok {
		return nil
	}
	list, err := convert.Convert(v, cty.List(cty.String))
	if err != nil || list.IsNull() || !list.IsWhollyKnown() {
		l.errorf(b.at(attribute), "Wrong type", "%s must be a list of %s", attribute, like)
		return nil
	}
	for _, glob := range list.AsValueSlice() {
		if glob.IsNull() {
			continue
		}
		if _, err := path.Match(comparableName(glob.AsString()), ""); err != nil {
			l.errorf(b.at(attribute), "Not a glob", "%q is not a valid pattern: close the bracket.", glob.AsString())
		}
		all = append(all, glob.AsString())
	}
	return all
}

// RuleID returns the id of a kind of message, from its summary: "harmful-value".
func RuleID(summary string) string {
	return cmp.Or(strings.ToLower(strings.ReplaceAll(strings.TrimSuffix(summary, "."), " ", "-")), "advice")
}

// acknowledge removes the warnings that a lint block allows.
func (l *loader) acknowledge(diags hcl.Diagnostics) hcl.Diagnostics {
	return slices.DeleteFunc(diags, func(d *hcl.Diagnostic) bool {
		about := func(b block) bool {
			return b.contains(d.Subject) && slices.ContainsFunc(l.acknowledged, func(a [2]string) bool {
				is, _ := path.Match(comparableName(a[1]), comparableName(cmp.Or(b.Name, b.Type)))
				return a[0] == RuleID(d.Summary) && (is || canonicalName(a[1]) == b.checkName())
			})
		}
		return d.Severity == hcl.DiagWarning && slices.ContainsFunc(l.blocks, about)
	})
}

// ifWanted ends the message of a warning that is about a wish.
func ifWanted(summary string, key fmt.Stringer) string {
	return fmt.Sprintf(" If you want that, add: lint { allow = [%q] }", RuleID(summary)+":"+key.String())
}

// comparableName returns one spelling for the names that mean the same module or parameter.
func comparableName(name string) string {
	if strings.ContainsAny(name, "./") {
		if key, err := ParseKey(name); err == nil {
			return string(key)
		}
	}
	return strings.ReplaceAll(name, "-", "_")
}

// isAllowed reports whether allow_names has the name.
func (r *reader) isAllowed(name string) bool {
	return slices.ContainsFunc(r.allowed, func(glob string) bool {
		matches, _ := path.Match(glob, comparableName(name))
		return matches
	})
}

// isForOthers reports whether the block's when is false on Debian, whose kernels the catalogue knows, because of os.id. Its names
// and values belong to another distribution.
func (l *loader) isForOthers(b block) bool {
	is, known := l.on(map[string]any{"os.id": "debian"}).value(b.get("when"))
	return known && is.Type() == cty.Bool && is.False()
}
