package policy

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
)

// Limits on the cost of evaluating a policy. An evaluation cannot be stopped once it has begun,
// so the size of its result is estimated first.
const (
	maxCost    = 4 << 20 // bytes and elements that all expressions of a policy produce
	maxFormat  = 4 << 10 // bytes that one call of format produces
	maxPattern = 500     // bytes of a regular expression
	factCost   = 1 << 10 // bytes, the assumed size of a fact
)

// affordable reports whether an expression may be evaluated. The first expression over the limit
// is reported, and is the last mistake reported: nothing after it is evaluated.
func (r *reader) affordable(e hcl.Expression) bool {
	if r.paid {
		return true
	}
	if r.spent += r.cost(e); r.spent > maxCost && !r.stopped {
		r.errorf(e.Range(), "Too complex", "With this expression, evaluating the policy would produce more than %d MiB of values, "+
			"because a long string or list is repeated. Write the values out.", maxCost>>20)
		r.stopped = true
	}
	return !r.stopped
}

// cost returns an upper bound of the bytes and elements that evaluating e produces: its own text, the variables that it names and, for each
// element that a "for" iterates over, the cost of the body.
func (r *reader) cost(e hcl.Expression) int {
	at := e.Range()
	cost := at.End.Byte - at.Start.Byte
	if r.stopped {
		return 0
	}
	for _, t := range e.Variables() {
		cost += r.costOf(t)
	}
	syntax, ok := e.(hclsyntax.Node)
	if !ok {
		return cost
	}
	_ = hclsyntax.VisitAll(syntax, func(n hclsyntax.Node) hcl.Diagnostics {
		switch n := n.(type) {
		case *hclsyntax.FunctionCallExpr:
			if n.Name == "format" {
				cost += maxFormat
			}
		case *hclsyntax.ForExpr:
			body := 0
			for _, part := range []hclsyntax.Expression{n.KeyExpr, n.ValExpr, n.CondExpr} {
				if part != nil {
					body += r.cost(part)
				}
			}
			cost += min(r.cost(n.CollExpr), maxCost) * min(body, maxCost)
		}
		return nil
	})
	return cost
}

// costOf returns the size of the variable or fact that t names. The loop variable of a "for" costs nothing: its collection
// is counted already.
func (r *reader) costOf(t hcl.Traversal) int {
	name := FactOf(t)
	if variable, is := strings.CutPrefix(name, "var."); is {
		return sizeOf(r.vars[variable])
	}
	if r.words.facts[name] != cty.NilType {
		return factCost
	}
	return 0
}

// sizeOf returns the number of bytes and elements of a value.
func sizeOf(v cty.Value) int {
	switch {
	case v == cty.NilVal || !v.IsKnown() || v.IsNull():
	case v.Type() == cty.String:
		return 1 + len(v.AsString())
	case v.Type() == cty.Number:
		return 1 + int(math.Abs(float64(v.AsBigFloat().MantExp(nil)))*math.Log10(2))
	case v.CanIterateElements():
		sum := 1
		for it := v.ElementIterator(); it.Next(); {
			key, value := it.Element()
			sum += sizeOf(key) + sizeOf(value)
		}
		return sum
	}
	return 1
}

// withCheck returns f with its arguments checked before each call.
func withCheck(f function.Function, check func(args []cty.Value) error) function.Function {
	return function.New(&function.Spec{
		Params: f.Params(), VarParam: f.VarParam(),
		Type: func(args []cty.Value) (cty.Type, error) {
			if err := check(args); err != nil {
				return cty.DynamicPseudoType, err
			}
			return f.ReturnTypeForValues(args)
		},
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) { return f.Call(args) },
	})
}

// checkFormat rejects a format whose result could be long. It assumes that each verb prints the longest argument, or the
// largest width in the format.
func checkFormat(args []cty.Value) error {
	format := args[0]
	if !format.IsKnown() || format.IsNull() {
		return nil
	}
	text, longest := format.AsString(), 0
	for _, a := range args[1:] {
		longest = max(longest, sizeOf(a))
	}
	width := 0
	for _, verb := range strings.Split(text, "%")[1:] { // its width is written before its letter
		if end := strings.IndexFunc(verb, unicode.IsLetter); end >= 0 {
			verb = verb[:end]
		}
		for _, digits := range strings.FieldsFunc(verb, func(c rune) bool { return !unicode.IsDigit(c) }) {
			n, err := strconv.Atoi(digits)
			if err != nil {
				n = maxFormat
			}
			width = max(width, min(n, maxFormat))
		}
	}
	if len(text)+strings.Count(text, "%")*max(longest, width) > maxFormat {
		return function.NewArgErrorf(0, "the result could have more than %d bytes; shorten the format", maxFormat)
	}
	return nil
}

func checkPattern(args []cty.Value) error {
	if p := args[0]; p.IsKnown() && !p.IsNull() && len(p.AsString()) > maxPattern {
		return function.NewArgError(0, fmt.Errorf("a pattern must have at most %d bytes", maxPattern))
	}
	return nil
}
