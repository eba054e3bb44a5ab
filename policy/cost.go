package policy

import (
	"fmt"
	"math"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
)

// What evaluating a policy may cost at most. An evaluation cannot be stopped: what it
// would make is counted before it begins.
const (
	maxCost    = 4 << 20 // bytes and elements that all expressions of a policy make
	maxFormat  = 4 << 10 // bytes that one call of format makes
	maxPattern = 500     // bytes of a regular expression
	factCost   = 1 << 10 // bytes that a fact is taken to have
)

// affordable reports whether an expression may be evaluated. The first that may not is
// a mistake, and the last one reported: what would follow is not known.
func (r *reader) affordable(e hcl.Expression) bool {
	if r.spent += r.cost(e); r.spent > maxCost && !r.stopped {
		r.errorf(e.Range(), "Too complex", "With this expression, evaluating the policy would make more than %d MiB of values: "+
			"a long text or list is repeated. Write the values out.", maxCost>>20)
		r.stopped = true
	}
	return !r.stopped
}

// cost returns an upper bound of the bytes and elements that evaluating e makes: its
// own text, the variables that it names and, for each element of what a "for" goes
// through, the same of its body. JSON has no "for" (checkJSONDepth).
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

// costOf returns the size of what t names. The name of a "for" stands for a part of what it goes through.
func (r *reader) costOf(t hcl.Traversal) int {
	name := factName(t)
	if variable, is := strings.CutPrefix(name, "var."); is {
		return sizeOf(r.vars[variable])
	}
	if factTypes()[name] != cty.NilType {
		return factCost
	}
	return 0
}

// size returns the bytes and elements of a value.
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

// bounded is f for arguments that check returns no error about.
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

// shortFormat refuses a format whose result may be long: each verb may print any argument, as wide as it says.
func checkFormat(args []cty.Value) error {
	format := args[0]
	if !format.IsKnown() || format.IsNull() {
		return nil
	}
	text, longest := format.AsString(), 0
	for _, a := range args[1:] {
		longest = max(longest, sizeOf(a))
	}
	width, digits := 0, 0
	for _, c := range text {
		if digits = digits*10 + int(c-'0'); c < '0' || c > '9' {
			digits = 0
		}
		digits = min(digits, maxFormat)
		width = max(width, digits)
	}
	if len(text)+strings.Count(text, "%")*max(longest, width) > maxFormat {
		return function.NewArgErrorf(0, "the result may have more than %d bytes", maxFormat)
	}
	return nil
}

func checkPattern(args []cty.Value) error {
	if p := args[0]; p.IsKnown() && !p.IsNull() && len(p.AsString()) > maxPattern {
		return function.NewArgError(0, fmt.Errorf("a pattern has at most %d bytes", maxPattern))
	}
	return nil
}
