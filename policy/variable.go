package policy

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
)

// readVariables sets the value of every variable block to the given one, or to its default.
func (l *loader) readVariables() {
	l.vars = map[string]cty.Value{}
	declared := map[string]bool{}
	for _, b := range l.blocks {
		if b.Type != "variable" {
			continue
		}
		if declared[b.Name] {
			continue
		}
		b = *l.winner(b.Type, b.Name)
		declared[b.Name] = true
		// A variable with a mistake remains declared, so that its uses are not reported too.
		l.vars[b.Name] = cty.DynamicVal
		if v, ok := l.readVariable(b); ok {
			l.vars[b.Name] = v
		}
	}
	names := slices.Sorted(maps.Keys(declared))
	for _, name := range slices.Sorted(maps.Keys(l.Vars)) {
		if !declared[name] {
			l.errorf(l.givenAt(name), "Unknown variable", "The policy does not declare variable %q. Declared variables: %s.%s",
				name, cmp.Or(strings.Join(names, ", "), "none"), DidYouMean(name, names))
		}
	}
}

func (l *loader) readVariable(b Stanza) (cty.Value, bool) {
	if !hclsyntax.ValidIdentifier(b.Name) {
		l.errorf(b.Range, "Not a name", "Name a variable in letters, digits, - and _, with a letter first; %q is not such a name.", b.Name)
		return cty.NilVal, false
	}
	l.text(b.Get("description"), "description")
	typ := cty.DynamicPseudoType
	if e := b.Get("type"); e != nil {
		t, diags := typeexpr.TypeConstraint(e)
		mendType(e, diags)
		if l.diags = append(l.diags, diags...); diags.HasErrors() {
			return cty.NilVal, false
		}
		typ = t
	} else if e := b.Get("default"); e != nil && l.affordable(e) {
		// Without a type, a default that is a single value determines it. With default = "1.29", a given 1.30 stays a string.
		if v, diags := e.Value(nil); !diags.HasErrors() && v.Type().IsPrimitiveType() {
			typ = v.Type()
		}
	}
	at := b.At("default")
	var v cty.Value
	text, given := l.Vars[b.Name]
	if !given {
		text, given = l.Env[b.Name]
	}
	if given {
		at = l.givenAt(b.Name)
		v = cty.StringVal(text)
		tokens, _ := hclsyntax.LexExpression([]byte(text), at.Filename, hcl.InitialPos)
		if diags := checkTokens(tokens); diags.HasErrors() {
			l.diags = append(l.diags, diags...)
			return cty.NilVal, false
		}
		// A list, a number or a bool is parsed as in a policy; a string is taken literally.
		e, diags := hclsyntax.ParseExpression([]byte(text), at.Filename, hcl.InitialPos)
		if !diags.HasErrors() && typ != cty.String && l.affordable(e) {
			if parsed, diags := e.Value(nil); !diags.HasErrors() {
				v = parsed
			}
		}
	} else if e := b.Get("default"); e != nil {
		if !l.affordable(e) {
			return cty.NilVal, false
		}
		value, diags := e.Value(nil)
		if l.diags = append(l.diags, diags...); diags.HasErrors() {
			return cty.NilVal, false
		}
		v = value
	} else {
		l.errorf(b.Range, "No value", "Variable %q has no default: set it with --var %[1]s=VALUE or NODEGATE_VAR_%[1]s=VALUE.", b.Name)
		return cty.NilVal, false
	}
	converted, err := convert.Convert(v, typ)
	if err != nil {
		declared := ""
		if given {
			declared = "; it is declared at " + Place(b.Range)
		}
		l.errorf(at, "Wrong type", "Variable %q: %s%s.", b.Name, err, declared)
		return cty.NilVal, false
	}
	return converted, l.checkRange(b, converted, at)
}

// mendType completes a message about a type by the one that the author means.
func mendType(e hcl.Expression, diags hcl.Diagnostics) {
	word := hcl.ExprAsKeyword(e)
	if v, wrong := e.Value(nil); !wrong.HasErrors() && v.Type() == cty.String && !v.IsNull() {
		word = v.AsString()
	}
	for _, d := range diags {
		if write := map[string]string{"int": "number", "integer": "number", "float": "number", "number": "number", "boolean": "bool",
			"bool": "bool", "str": "string", "string": "string", "list": "list(string)", "map": "map(string)"}[word]; write != "" {
			d.Detail = "Write: type = " + write
		}
	}
}

// givenAt returns the position of a variable's given value: in a file, on the command line or in the environment.
func (l *loader) givenAt(name string) hcl.Range {
	if at, ok := l.VarsAt[name]; ok {
		return at
	}
	from := "--var " + name
	if _, ok := l.Vars[name]; !ok {
		from = "NODEGATE_VAR_" + name
	}
	return hcl.Range{Filename: from, Start: hcl.InitialPos, End: hcl.InitialPos}
}

// isText reports whether an expression is a string without interpolation.
func isText(e hcl.Expression) bool {
	t, is := e.(*hclsyntax.TemplateExpr)
	return is && t.IsStringLiteral()
}

// ReadVariables adds the NAME = VALUE lines (HCL attributes) of files to o. A value is kept as
// written, and is parsed according to the variable's type.
func (o *Options) ReadVariables(files []File) hcl.Diagnostics {
	for _, f := range files {
		if diags := checkDepth(f); diags.HasErrors() {
			return diags
		}
		parsed, diags := hclsyntax.ParseConfig(f.Text, f.Name, hcl.InitialPos)
		attrs := hcl.Attributes{}
		if !diags.HasErrors() {
			attrs, diags = parsed.Body.JustAttributes()
		}
		if diags.HasErrors() {
			return diags
		}
		for name, a := range attrs {
			o.VarsAt[name] = a.Expr.Range()
			if isText(a.Expr) {
				v, diags := a.Expr.Value(nil)
				if diags.HasErrors() {
					return diags
				}
				o.Vars[name] = v.AsString()
				continue
			}
			text := strings.TrimSpace(string(a.Expr.Range().SliceBytes(f.Text)))
			o.Vars[name] = strings.TrimSuffix(strings.TrimPrefix(text, `"`), `"`)
		}
	}
	return nil
}
