package policy

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/json"
	"github.com/zclconf/go-cty/cty"
)

// native returns attributes whose expressions have a syntax to walk: JSON becomes the same text in HCL, so that every rule
// about expressions covers both.
func native(attrs hcl.Attributes) hcl.Attributes {
	all := make(hcl.Attributes, len(attrs))
	for name, a := range attrs {
		converted := *a
		if json.IsJSONExpression(a.Expr) {
			converted.Expr = nativeExpression(a.Expr)
		}
		all[name] = &converted
	}
	return all
}

// nativeExpression converts an expression in JSON. An expression with a syntax error is returned unchanged: its evaluation reports the
// error.
func nativeExpression(e hcl.Expression) hcl.Expression {
	if list, diags := hcl.ExprList(e); !diags.HasErrors() {
		tuple := &hclsyntax.TupleConsExpr{SrcRange: e.Range(), OpenRange: e.StartRange()}
		for _, item := range list {
			converted, is := nativeExpression(item).(hclsyntax.Expression)
			if !is {
				return e
			}
			tuple.Exprs = append(tuple.Exprs, converted)
		}
		return tuple
	}
	if pairs, diags := hcl.ExprMap(e); !diags.HasErrors() {
		object := &hclsyntax.ObjectConsExpr{SrcRange: e.Range(), OpenRange: e.StartRange()}
		for _, pair := range pairs {
			key, isKey := nativeExpression(pair.Key).(hclsyntax.Expression)
			value, isValue := nativeExpression(pair.Value).(hclsyntax.Expression)
			if !isKey || !isValue {
				return e
			}
			object.Items = append(object.Items, hclsyntax.ObjectConsItem{KeyExpr: key, ValueExpr: value})
		}
		return object
	}
	v, diags := e.Value(nil) // a string as it is written
	if diags.HasErrors() {
		return e
	}
	if v.IsNull() || v.Type() != cty.String {
		return &hclsyntax.LiteralValueExpr{Val: v, SrcRange: e.Range()}
	}
	start := e.Range().Start
	template, diags := hclsyntax.ParseTemplate([]byte(v.AsString()), e.Range().Filename,
		hcl.Pos{Line: start.Line, Column: start.Column + 1, Byte: start.Byte + 1}) // after the quote
	switch t := template.(type) {
	case *hclsyntax.TemplateWrapExpr:
		return t.Wrapped
	case hclsyntax.Expression:
		if !diags.HasErrors() {
			return t
		}
	}
	return e
}
