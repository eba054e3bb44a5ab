package policy

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"
)

// Bases returns the files that use blocks of the files name and that are not among them. A base is beside the file that uses it, because
// all files of a policy are installed in one directory.
func Bases(files []File) (all []string) {
	l := &loader{reader: &reader{words: newVocabulary()}, used: map[string]bool{}, policy: &Policy{}}
	for _, f := range files {
		l.parse(f, 0)
	}
	for _, b := range l.bases {
		if name, ok := b.base(); ok && !slices.Contains(all, name) && !slices.ContainsFunc(files, func(f File) bool { return f.Name == name }) {
			all = append(all, name)
		}
	}
	return all
}

// base returns the name of the file that a use block names.
func (b Stanza) base() (string, bool) {
	name := strings.TrimPrefix(b.Name, "./")
	isBeside := IsPolicyFile(name) && !strings.Contains(name, "/")
	if dir := path.Dir(b.Range.Filename); dir != "." || strings.HasPrefix(b.Range.Filename, "./") {
		name = strings.TrimSuffix(dir, "/") + "/" + name
	}
	return name, isBeside
}

// rankBases ranks the blocks of the files that use blocks name.
func (l *loader) rankBases(files []File) {
	rank := map[string]int{}
	for range files { // a chain of bases is not longer
		for _, b := range l.bases {
			name, _ := b.base()
			rank[name] = max(rank[name], rank[b.Range.Filename]+1)
		}
	}
	for _, b := range l.bases {
		name, ok := b.base()
		switch i := slices.IndexFunc(files, func(f File) bool { return f.Name == name }); {
		case !ok || name == b.Range.Filename:
			l.errorf(b.Range, "Not a file of this directory", "%q must name another *.hcl file in the same directory: use \"./base.hcl\" "+
				"{}.", b.Name)
		case i < 0:
			l.errorf(b.Range, "No such file", "%s does not exist. A base is beside the file that uses it.", name)
		case rank[name] <= rank[b.Range.Filename]:
			l.errorf(b.Range, "Bases in a circle", "%s uses this file too, directly or by another. Remove one of the use blocks.", name)
		}
	}
	for i := range l.blocks {
		if b := &l.blocks[i]; !b.IsBuiltin() {
			b.Rank = rank[b.Range.Filename]
		}
	}
}

// hasVersion reports whether nodegate is as new as a policy requires. If it is not, other messages about the policy would mislead.
func (l *loader) hasVersion(required *hcl.Attribute) bool {
	if required == nil {
		return true
	}
	before, e := len(l.diags), required.Expr
	text := l.textOf(e, "required_version", strings.Replace(inQuotes(e, ""), `"`, `">= `, 1))
	if len(l.diags) > before {
		return true
	}
	least, err := VersionNumbers(strings.TrimSpace(strings.TrimPrefix(text, ">=")))
	if err != nil || text == "" {
		l.errorf(required.Expr.Range(), "Wrong value", "required_version must be the oldest version of nodegate that has all that the policy "+
			"uses: required_version = \">= 0.2\".")
		return true
	}
	have, err := VersionNumbers(l.Version)
	if err != nil || l.Version == "" || slices.Compare(have, least) >= 0 {
		return true
	}
	l.diags, l.blocks = nil, nil
	l.errorf(required.Expr.Range(), "Too old", "The policy requires nodegate %s; this is %s. Install a newer one.", text, l.Version)
	l.stopped = true
	return false
}

// checkRange reports a variable's value that its block does not allow.
func (l *loader) checkRange(b Stanza, v cty.Value, at hcl.Range) bool {
	if allowed, ok := l.value(b.Get("one_of")); ok {
		if !allowed.CanIterateElements() || !slices.ContainsFunc(allowed.AsValueSlice(), func(a cty.Value) bool { return a.RawEquals(v) }) {
			l.errorf(at, "Wrong value", "Variable %q must be one of its one_of at %s.", b.Name, Place(b.At("one_of")))
			return false
		}
	}
	for _, bound := range []string{"min", "max"} {
		limit, ok := l.value(b.Get(bound))
		if !ok {
			continue
		}
		if limit.Type() != cty.Number || v.Type() != cty.Number {
			l.errorf(b.At(bound), "Wrong type", "%s is for a variable that is a number; write type = number.", bound)
			return false
		}
		if outside := v.LessThan(limit); bound == "min" && outside.True() || bound == "max" && limit.LessThan(v).True() {
			l.errorf(at, "Out of range", "Variable %q must be at %s %s (%s).", b.Name, map[string]string{"min": "least", "max": "most"}[bound],
				limit.AsBigFloat().Text('f', -1), Place(b.At(bound)))
			return false
		}
	}
	return true
}

// Shipped returns the files with the given values of variables as their defaults: a node reads its policy without these values. It returns
// the files unchanged, and the mistakes, if the values do not fit the policy.
func Shipped(files []File, o Options) ([]File, hcl.Diagnostics) {
	l := read(files, o)
	if l.diags.HasErrors() {
		return files, l.diags
	}
	given := map[string]bool{}
	for name := range o.Vars {
		given[name] = true
	}
	for name := range o.Env {
		given[name] = l.vars[name] != cty.NilVal
	}
	shipped := slices.Clone(files)
	var last *hclwrite.File // to which variables of built-in policies are added
	at := -1
	for i, f := range shipped {
		parsed, diags := hclwrite.ParseConfig(f.Text, f.Name, hcl.InitialPos)
		if diags.HasErrors() {
			return files, diags
		}
		for _, b := range parsed.Body().Blocks() {
			if b.Type() == "variable" && given[b.Labels()[0]] && l.isOwn(b.Labels()[0], f.Name) {
				setDefault(b.Body(), l.vars[b.Labels()[0]])
				delete(given, b.Labels()[0])
			}
		}
		shipped[i].Text, shipped[i].own = parsed.Bytes(), false
		last, at = parsed, i
	}
	for name, is := range given {
		if is && last != nil {
			last.Body().AppendNewline()
			last.Body().AppendNewBlock("variable", []string{name}).Body().SetAttributeValue("default", l.vars[name])
			shipped[at].Text = last.Bytes()
		}
	}
	return shipped, l.diags
}

// setDefault sets the default of a variable's block, which may be on one line and can then have only one attribute.
func setDefault(body *hclwrite.Body, v cty.Value) {
	if attributes := body.Attributes(); attributes["default"] == nil {
		body.Clear()
		body.AppendNewline()
		for _, name := range slices.Sorted(maps.Keys(attributes)) {
			body.SetAttributeRaw(name, attributes[name].Expr().BuildTokens(nil))
		}
	}
	body.SetAttributeValue("default", v)
}

// isOwn reports whether the variable that counts is in the file.
func (l *loader) isOwn(name, file string) bool {
	b := l.winner("variable", name)
	return b != nil && b.Range.Filename == file
}
