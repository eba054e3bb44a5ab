package policy

import (
	"path"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
)

// readLint reads allow_names of the lint blocks: names of modules, parameters, drivers and kinds of links that the catalogue of kernels
// lacks and that the author knows to be right.
func (l *loader) readLint() {
	l.blocks = slices.DeleteFunc(l.blocks, func(b block) bool {
		if b.Type != "lint" {
			return false
		}
		l.acknowledging = append(l.acknowledging, b.expressions()...)
		v, ok := l.value(b.get("allow_names"))
		if !ok {
			return true
		}
		list, err := convert.Convert(v, cty.List(cty.String))
		if err != nil || list.IsNull() || !list.IsWhollyKnown() {
			l.errorf(b.at("allow_names"), "Wrong type", "allow_names must be a list of names and globs: allow_names = [\"my_module\", "+
				"\"net.mine.*\"].")
			return true
		}
		for _, name := range list.AsValueSlice() {
			if name.IsNull() {
				continue
			}
			glob := comparableName(name.AsString())
			if _, err := path.Match(glob, ""); err != nil {
				l.errorf(b.at("allow_names"), "Not a glob", "%q is not a valid pattern: close the bracket.", name.AsString())
			}
			l.allowed = append(l.allowed, glob)
		}
		return true
	})
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
	is, known := l.holds(b.get("when"), map[string]any{"os.id": "debian"})
	return known && !is
}
