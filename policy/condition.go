package policy

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"nodegate/internal/sorted"
)

// question holds the comparisons of facts in a block.
type question struct {
	when   hcl.Expression
	names  []string         // of the facts that it compares
	values map[string][]any // one value for each outcome of its comparisons of a fact
}

// mostCases bounds the combinations of values that one condition is evaluated for.
const mostCases = 4096

// questionOf returns the comparisons of a block. The values are those at which a comparison's own literals change its outcome; a
// recorded kernel counts as an outcome.
func (l *loader) questionOf(b block) question {
	if q, known := l.questions[b.Range]; known {
		return q
	}
	q := question{when: b.get("when"), values: map[string][]any{}}
	if q.when != nil && len(b.Attrs) > 1 && !slices.ContainsFunc(b.valueExpressions(), l.readsFact) {
		return l.conditionOf(b)
	}
	tests := map[string][]hclsyntax.Expression{}
	literals := map[string][]any{}
	for _, e := range b.expressions() {
		syntax, is := e.(hclsyntax.Node)
		if !is || !l.readsFact(e) {
			continue
		}
		_ = hclsyntax.VisitAll(syntax, func(n hclsyntax.Node) hcl.Diagnostics {
			if test, fact := l.testOf(n); test != nil {
				tests[fact] = append(tests[fact], test)
				literals[fact] = append(literals[fact], l.literals(fact, test)...)
			}
			return nil
		})
	}
	q.names = slices.Sorted(maps.Keys(tests))
	for _, fact := range q.names {
		q.values[fact] = l.outcomes(fact, tests[fact], literals[fact])
	}
	l.questions[b.Range] = q
	return q
}

// conditionOf returns the comparisons of a block's when alone.
func (l *loader) conditionOf(b block) question {
	return l.questionOf(block{Range: b.at("when"), Attrs: hcl.Attributes{"when": b.Attrs["when"]}})
}

// testOf returns an expression that compares one fact with constants, and this fact.
func (l *loader) testOf(n hclsyntax.Node) (hclsyntax.Expression, string) {
	switch e := n.(type) {
	case *hclsyntax.BinaryOpExpr:
		if e.Op.Type != cty.Bool || e.Op == hclsyntax.OpLogicalAnd || e.Op == hclsyntax.OpLogicalOr {
			return nil, ""
		}
	case *hclsyntax.FunctionCallExpr:
		if !slices.Contains([]string{"version_at_least", "contains", "can"}, e.Name) {
			return nil, ""
		}
	default:
		return nil, ""
	}
	e, fact := n.(hclsyntax.Expression), ""
	for _, t := range e.Variables() {
		name := factName(t)
		switch {
		case t.RootName() == "var" || name == fact:
		case fact != "" || l.words.facts[name] == cty.NilType: // a second fact, or the variable of a for
			return nil, ""
		default:
			fact = name
		}
	}
	if fact == "" {
		return nil, ""
	}
	return e, fact
}

// literals returns the values of a fact that the constants in an expression bound.
func (l *loader) literals(fact string, e hclsyntax.Expression) (all []any) {
	_ = hclsyntax.VisitAll(e, func(n hclsyntax.Node) hcl.Diagnostics {
		switch v := l.constant(n); {
		case v == cty.NilVal:
		case v.Type() == cty.Number && l.words.facts[fact] == cty.Number:
			number, _ := v.AsBigFloat().Int64()
			step := map[bool]int64{true: 1 << 10, false: 1}[fact == "node.memory"] // a whole number of KiB
			number -= number % step
			all = append(all, number, number+step, number-step)
		case v.Type() == cty.String && l.words.facts[fact] == cty.String:
			all = append(all, v.AsString())
		}
		return nil
	})
	return all
}

// constant returns the value of a literal, of a variable, and of an operation on these, such as 16 * 1024, or cty.NilVal.
func (l *loader) constant(n hclsyntax.Node) cty.Value {
	switch n.(type) {
	case *hclsyntax.LiteralValueExpr, *hclsyntax.BinaryOpExpr, *hclsyntax.ScopeTraversalExpr:
	default:
		return cty.NilVal
	}
	e := n.(hclsyntax.Expression)
	if slices.ContainsFunc(e.Variables(), func(t hcl.Traversal) bool { return t.RootName() != "var" }) {
		return cty.NilVal
	}
	v, diags := e.Value(&hcl.EvalContext{Variables: map[string]cty.Value{"var": cty.ObjectVal(l.vars)}})
	if diags.HasErrors() || !v.IsKnown() || v.IsNull() {
		return cty.NilVal
	}
	return v
}

// outcomes returns one value of a fact for each outcome of the tests. The first is the value with which most of them are true.
func (l *loader) outcomes(fact string, tests []hclsyntax.Expression, values []any) []any {
	low, high := extremes(fact)
	type outcome struct {
		value any
		yes   int
	}
	if usual := l.usualValues(fact); low == nil {
		values = append(values, usual...)
		for _, word := range closedWords(fact) {
			values = append(values, word)
		}
	} else if strings.HasPrefix(fact, "kernel.") {
		recorded := slices.DeleteFunc(usual, func(v any) bool { return l.recordedOf(v.(string)) == "" })
		values = append(recorded, values...)
	}
	var all []outcome
	seen := map[string]bool{}
	for _, v := range append(values, low, high) {
		if !isPlausible(fact, v) {
			continue
		}
		node, o, class := l.on(map[string]any{fact: v}), outcome{v, 0}, ""
		for _, test := range tests {
			scope, _, _ := node.scopeFor(test)
			answer, diags := test.Value(scope)
			if yes := !diags.HasErrors() && answer.IsKnown() && answer.Type() == cty.Bool && answer.True(); yes {
				o.yes++
				class += "y"
			}
			class += "."
		}
		if strings.HasPrefix(fact, "kernel.") {
			class += l.recordedOf(v.(string))
		}
		if !seen[class] {
			seen[class] = true
			all = append(all, o)
		}
	}
	sorted.By(all, func(a, b outcome) int { return cmp.Compare(b.yes, a.yes) })
	kept := make([]any, len(all))
	for i, o := range all {
		kept[i] = o.value
	}
	return kept
}

// recordedOf returns the version of the recorded kernel with this version or release, or "".
func (l *loader) recordedOf(version string) string {
	for _, v := range l.catalogue.Versions() {
		if rest, is := strings.CutPrefix(version, v); is && (rest == "" || rest[0] < '0' || rest[0] > '9') {
			return v
		}
	}
	return ""
}

// cases returns the combinations of the values. It stops after mostCases.
func (q question) cases() iter.Seq[map[string]any] {
	return func(yield func(map[string]any) bool) {
		at := make([]int, len(q.names))
		for range mostCases {
			facts := map[string]any{}
			for i, name := range q.names {
				if len(q.values[name]) == 0 {
					return
				}
				facts[name] = q.values[name][at[i]]
			}
			if !yield(facts) {
				return
			}
			i := 0
			for ; i < len(at); i++ {
				if at[i]++; at[i] < len(q.values[q.names[i]]) {
					break
				}
				at[i] = 0
			}
			if i == len(at) {
				return
			}
		}
	}
}

// size returns the number of combinations, at most mostCases + 1.
func (q question) size() int {
	n := 1
	for _, values := range q.values {
		n = min(n*len(values), mostCases+1)
	}
	return n
}

// holds returns the value of a block's when on a node. An unknown value is not known.
func (l *loader) holds(when hcl.Expression, facts map[string]any) (is, known bool) {
	if when == nil {
		return true, true
	}
	v, known := l.on(facts).value(when)
	known = known && v.Type() == cty.Bool
	return known && v.True(), known
}

// checkConditions reports each when that no real node, or every real node, makes true. It judges only a condition that compares
// facts with constants: its truth is known for all nodes then, and not only for the nodes of the list.
func (l *loader) checkConditions(reported hcl.Diagnostics) hcl.Diagnostics {
	r := &reader{}
	for _, b := range l.blocks {
		when, is := b.get("when").(hclsyntax.Expression)
		if !is || !l.readsFact(when) || !l.enumerable(when) || slices.ContainsFunc(append(reported, r.warnings...), func(d *hcl.Diagnostic) bool {
			return d.Subject.Filename == when.Range().Filename && d.Subject.Overlaps(when.Range())
		}) {
			continue
		}
		q := l.conditionOf(b)
		if q.size() > mostCases {
			continue
		}
		always, never := true, true
		for facts := range q.cases() {
			is, _ := l.holds(when, facts)
			if always, never = always && is, never && !is; !always && !never {
				break
			}
		}
		switch {
		case never:
			r.warnf(when.Range(), "Never true",
				"No node meets this condition, so nodegate never checks %s. Correct the condition, or write when = false.", b.checkName())
		case always:
			r.warnf(when.Range(), "Always true", "Every node meets this condition. Correct it, or remove it.")
		}
	}
	return r.warnings
}

// enumerable reports whether a condition consists of comparisons of one fact with a constant.
func (l *loader) enumerable(e hclsyntax.Expression) bool {
	compares := func(a, b hclsyntax.Expression) bool {
		_, fact := a.(*hclsyntax.ScopeTraversalExpr)
		return fact && !l.readsFact(b)
	}
	switch e := e.(type) {
	case *hclsyntax.ParenthesesExpr:
		return l.enumerable(e.Expression)
	case *hclsyntax.UnaryOpExpr:
		return e.Op == hclsyntax.OpLogicalNot && l.enumerable(e.Val)
	case *hclsyntax.BinaryOpExpr:
		if e.Op == hclsyntax.OpLogicalAnd || e.Op == hclsyntax.OpLogicalOr {
			return l.enumerable(e.LHS) && l.enumerable(e.RHS)
		}
		return e.Op.Type == cty.Bool && (compares(e.LHS, e.RHS) || compares(e.RHS, e.LHS)) || !l.readsFact(e)
	case *hclsyntax.FunctionCallExpr:
		if len(e.Args) == 2 && (e.Name == "version_at_least" && compares(e.Args[0], e.Args[1]) ||
			e.Name == "contains" && compares(e.Args[1], e.Args[0])) {
			return true
		}
	}
	return !l.readsFact(e)
}
