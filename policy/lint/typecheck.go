package lint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"

	"nodegate/policy"
	"nodegate/policy/kernels"
)

// checkTypes reports operands, conditions and arguments of a wrong type, for any values of the facts and on every branch of every
// expression. HCL converts strings only when a node evaluates the expression, and would fail there.
func (l *linter) checkTypes() hcl.Diagnostics {
	c := &typeChecker{reading: &reading{linter: l}}
	for _, e := range l.expressions() {
		syntax, ok := e.(hclsyntax.Node)
		if !ok || len(e.Variables()) == 0 {
			continue
		}
		if scope, ok := l.Scope(e); ok {
			c.EvalContext = scope
			_ = hclsyntax.Walk(syntax, c)
		}
	}
	return append(c.diags, c.warnings...)
}

type typeChecker struct {
	*reading
	*hcl.EvalContext
	trying int // nesting depth of can() and try(), which may contain errors
}

func (c *typeChecker) Exit(n hclsyntax.Node) hcl.Diagnostics {
	c.trying -= countTry(n)
	return nil
}

func (c *typeChecker) Enter(n hclsyntax.Node) hcl.Diagnostics {
	if c.trying += countTry(n); c.trying > 0 {
		return nil
	}
	switch n := n.(type) {
	case *hclsyntax.BinaryOpExpr:
		want := n.Op.Impl.Params()[0].Type
		if want == cty.DynamicPseudoType {
			c.checkEquality(n)
			return nil
		}
		if n.Op == hclsyntax.OpDivide || n.Op == hclsyntax.OpModulo {
			c.checkDivisor(n.RHS)
		}
		less := n.Op == hclsyntax.OpLessThan || n.Op == hclsyntax.OpLessThanOrEqual
		if n.Op == hclsyntax.OpGreaterThan || n.Op == hclsyntax.OpGreaterThanOrEqual || less {
			c.checkOperand(n.LHS, n.RHS, want, less, n.Range())
			c.checkOperand(n.RHS, n.LHS, want, !less, n.Range())
			c.checkMemory(n.LHS, n.RHS)
			c.checkMemory(n.RHS, n.LHS)
			return nil
		}
		c.checkOperand(n.LHS, nil, want, false, n.LHS.Range())
		c.checkOperand(n.RHS, nil, want, false, n.RHS.Range())
	case *hclsyntax.UnaryOpExpr:
		c.checkOperand(n.Val, nil, n.Op.Impl.Params()[0].Type, false, n.Range())
	case *hclsyntax.ConditionalExpr:
		c.checkOperand(n.Condition, nil, cty.Bool, false, n.Condition.Range())
	case *hclsyntax.FunctionCallExpr:
		c.checkCall(n)
	}
	return nil
}

// checkMemory reports a comparison of memory with a number that can only be meant as GiB.
func (c *typeChecker) checkMemory(fact, e hclsyntax.Expression) {
	v, diags := e.Value(nil)
	if nameOf(fact) != "node.memory" || diags.HasErrors() || v.IsNull() || v.Type() != cty.Number {
		return
	}
	if n, _ := v.AsBigFloat().Float64(); n < 1<<20 {
		c.warnf(e.Range(), "Bytes",
			"node.memory is in bytes, and every node has more than that. Write %s * 1024 * 1024 * 1024 for GiB.", v.AsBigFloat().Text('f', -1))
	}
}

func countTry(n hclsyntax.Node) int {
	if call, is := n.(*hclsyntax.FunctionCallExpr); is && (call.Name == "can" || call.Name == "try") {
		return 1
	}
	return 0
}

// typeOf returns the type of an expression for any values of the facts, and whether its value depends on them. An expression with the loop
// variable of a "for" has a dynamic type: its mistakes show only on the nodes of Lint.
func (c *typeChecker) typeOf(e hclsyntax.Expression) (t cty.Type, depends bool) {
	for _, v := range e.Variables() {
		if v.RootName() != "var" && c.Variables[v.RootName()] == cty.NilVal {
			return cty.DynamicPseudoType, false
		}
	}
	v, diags := e.Value(c.EvalContext)
	if diags.HasErrors() {
		return cty.DynamicPseudoType, false
	}
	return v.Type(), !v.IsWhollyKnown()
}

// checkOperand reports an operand that would be converted to the type that its operator needs.
// less is true if the expression compares it as the smaller one.
func (c *typeChecker) checkOperand(e, other hclsyntax.Expression, want cty.Type, less bool, at hcl.Range) {
	t, depends := c.typeOf(e)
	if !depends || !t.IsPrimitiveType() || t == want {
		return
	}
	detail := fmt.Sprintf("%s is %s where %s is needed; a node could not convert it.", nameOf(e),
		policy.WithArticle(t), policy.WithArticle(want))
	if v := nameOf(e); other != nil && want == cty.Number && (strings.HasSuffix(v, "version") || v == "kernel.release") {
		least := "LEAST"
		if value, diags := other.Value(c.EvalContext); !diags.HasErrors() && value.IsWhollyKnown() && value.Type() == cty.String {
			least = value.AsString()
		} else if !diags.HasErrors() && value.IsWhollyKnown() && value.Type() == cty.Number {
			least = versionText(other, value)
		}
		not := map[bool]string{true: "!"}[less]
		detail = fmt.Sprintf("%s is a string such as %q, not a number: write %sversion_at_least(%s, %q).", v, exampleOf(v), not, v, least)
	}
	c.errorf(at, "Wrong type", "%s", detail)
}

// checkDivisor reports a divisor that may be zero. A fact alone, or max() with a positive number, cannot be zero.
func (c *typeChecker) checkDivisor(e hclsyntax.Expression) {
	if p, is := e.(*hclsyntax.ParenthesesExpr); is {
		e = p.Expression
	}
	if v, diags := e.Value(c.EvalContext); !diags.HasErrors() && v.IsWhollyKnown() && v.Type() == cty.Number && v.AsBigFloat().Sign() == 0 {
		c.errorf(e.Range(), "Division by zero", "The divisor is zero. Divide by another number.")
	}
	if t, depends := c.typeOf(e); !depends || t != cty.Number || nameOf(e) != "this" {
		return
	}
	if call, is := e.(*hclsyntax.FunctionCallExpr); is && call.Name == "max" {
		for _, arg := range call.Args {
			v, diags := arg.Value(c.EvalContext)
			if !diags.HasErrors() && v.IsWhollyKnown() && v.Type() == cty.Number && v.AsBigFloat().Sign() > 0 {
				return
			}
		}
	}
	c.errorf(e.Range(), "Division by zero", "On some nodes the divisor can be zero: write max(1, ...) around it.")
}

// checkEquality reports two sides that are never equal because their types differ.
func (c *typeChecker) checkEquality(n *hclsyntax.BinaryOpExpr) {
	left, dependsLeft := c.typeOf(n.LHS)
	right, dependsRight := c.typeOf(n.RHS)
	c.checkPossible(nameOf(n.LHS), n.RHS)
	c.checkPossible(nameOf(n.RHS), n.LHS)
	if dependsLeft && left.IsPrimitiveType() && right.IsTupleType() {
		c.errorf(n.Range(), "Wrong type", "%s is %s and never equals a list. Write %scontains([...], %[1]s).", nameOf(n.LHS),
			policy.WithArticle(left),
			map[bool]string{true: "!"}[n.Op == hclsyntax.OpNotEqual])
	}
	if !dependsLeft && !dependsRight || !left.IsPrimitiveType() || !right.IsPrimitiveType() || left == right {
		return
	}
	c.errorf(n.Range(), "Wrong type", "%s is %s and %s is %s: they are never equal.%s", nameOf(n.LHS), policy.WithArticle(left), nameOf(n.RHS),
		policy.WithArticle(right), suggestLiteral(n.LHS, left, n.RHS)+suggestLiteral(n.RHS, right, n.LHS))
}

// checkPossible reports a string that a fact never equals. The versions of the kernel and of kubelet nearly always have three numbers.
func (c *typeChecker) checkPossible(fact string, e hclsyntax.Expression) {
	v, diags := e.Value(c.EvalContext)
	if diags.HasErrors() || v.Type() != cty.String || v.IsNull() || !v.IsKnown() {
		return
	}
	text := v.AsString()
	words := closedWords(fact)
	switch {
	case words != nil && !slices.Contains(words, text):
		c.errorf(e.Range(), "Wrong value", "%s is never %q; it is one of %s.%s",
			fact, text, strings.Join(policy.Quoted(words), ", "), policy.Nearest(text, words))
	case fact == "os.id" && len(kernels.About("os", text)) > 0:
	case fact == "os.id" && strings.ToLower(strings.TrimSpace(text)) != text:
		c.errorf(e.Range(), "Wrong value", "os.id is never %q: os-release(5) requires lower case. Write %q.",
			text, strings.ToLower(strings.TrimSpace(text)))
	case fact == "os.id" && text != "":
		var all, meant []string
		for _, rule := range kernels.Rules("os") {
			all = append(all, rule.Words[0])
			if slices.Contains(rule.Words[1:], text) {
				meant = append(meant, fmt.Sprintf("%q", rule.Words[0]))
			}
		}
		hint := policy.Nearest(text, all)
		if meant != nil {
			hint = " Did you mean " + strings.Join(meant, " or ") + "?"
		}
		c.warnf(e.Range(), "Unknown value", "os.id is the ID in /etc/os-release, and %q is not that of a known distribution.%s", text, hint)
	case fact == "os.version" && strings.Trim(text, "0123456789.") == text && text != "":
		c.warnf(e.Range(), "Never equal", "os.version is a number such as %q; the distribution is os.id, and no fact has the code "+
			"name.", exampleOf(fact))
	case fact == "cni.name" && slices.Contains([]string{"flannel", "calico"}, text):
		c.warnf(e.Range(), "Never equal", "cni.name is the \"name\" in the CNI's configuration file; %s's own manifest writes %q.", text,
			map[string]string{"flannel": "cbr0", "calico": "k8s-pod-network"}[text])
	case (fact == "kernel.version" || fact == "kubelet.version") && strings.Count(text, ".") < 2:
		c.warnf(e.Range(), "Never equal", "%s is a string such as %q: write version_at_least(%[1]s, %[3]q).", fact, exampleOf(fact), text)
	}
}

// versionText returns a number as the version that its author meant. No component has had a version 1.1 to 1.4 for years: 1.3 is 1.30.
func versionText(e hcl.Expression, v cty.Value) string {
	text := policy.NumberText(e, v)
	if len(text) == 3 && strings.HasPrefix(text, "1.") {
		text += "0"
	}
	return text
}

// suggestLiteral suggests how to write a number that is compared with a string.
func suggestLiteral(of hclsyntax.Expression, other cty.Type, e hclsyntax.Expression) string {
	v, diags := e.Value(nil)
	if diags.HasErrors() || other != cty.String || v.Type() != cty.Number {
		return ""
	}
	if fact := nameOf(of); fact == "kernel.version" || fact == "kubelet.version" {
		return fmt.Sprintf(" Write version_at_least(%s, %q).", fact, versionText(e, v))
	}
	return fmt.Sprintf(" Write %q.", policy.NumberText(e, v))
}

func (c *typeChecker) checkCall(n *hclsyntax.FunctionCallExpr) {
	f, known := c.Functions[n.Name]
	if !known || n.ExpandFinal {
		return
	}
	for i, arg := range n.Args {
		if p, ok := parameterOf(f, i); ok && p.Type.IsPrimitiveType() {
			c.checkOperand(arg, nil, p.Type, false, arg.Range())
		}
		v, diags := arg.Value(c.EvalContext)
		if n.Name != "version_at_least" || diags.HasErrors() || !v.IsWhollyKnown() {
			continue
		}
		switch v.Type() {
		case cty.Number:
			c.errorf(arg.Range(), "Not a version", "Write the version in quotes: the number 1.30 would be 1.3.")
		case cty.String:
			if _, err := policy.VersionNumbers(v.AsString()); err != nil {
				c.errorf(arg.Range(), "Not a version", "%s.", strings.ToUpper(err.Error()[:1])+err.Error()[1:])
			}
		}
	}
	if n.Name == "version_at_least" && len(n.Args) == 2 {
		_, first := c.typeOf(n.Args[0])
		if _, second := c.typeOf(n.Args[1]); second && !first {
			c.warnf(n.Range(), "Arguments swapped",
				"This is true if %s is not newer than the constant. Write version_at_least(%[1]s, LEAST), with ! before it for older "+
					"versions.", nameOf(n.Args[1]))
		}
	}
	if n.Name == "contains" && len(n.Args) == 2 {
		c.checkContains(n)
		if list, is := n.Args[0].(*hclsyntax.TupleConsExpr); is {
			for _, e := range list.Exprs {
				c.checkPossible(nameOf(n.Args[1]), e)
			}
		}
	}
}

// checkContains reports a search in a list that has no value of the right type.
func (c *typeChecker) checkContains(n *hclsyntax.FunctionCallExpr) {
	list, _ := c.typeOf(n.Args[0])
	what, depends := c.typeOf(n.Args[1])
	switch {
	case list.IsPrimitiveType():
		c.errorf(n.Args[0].Range(), "Wrong type",
			"contains searches a list, for example [\"debian\", \"ubuntu\"]; this is %s.", policy.WithArticle(list))
	case list.IsTupleType() && depends && what.IsPrimitiveType() && list.Length() > 0:
		for _, t := range list.TupleElementTypes() {
			if t == what || !t.IsPrimitiveType() {
				return
			}
		}
		c.errorf(n.Args[0].Range(), "Wrong type", "%s is %s, but the list has no value of that type, so this is never "+
			"true.", nameOf(n.Args[1]), policy.WithArticle(what))
	}
}

// parameterOf returns the i-th parameter of a function.
func parameterOf(f function.Function, i int) (function.Parameter, bool) {
	if params := f.Params(); i < len(params) {
		return params[i], true
	}
	if v := f.VarParam(); v != nil {
		return *v, true
	}
	return function.Parameter{}, false
}

// nameOf returns the name of an expression for a message: the name of a fact, otherwise "this".
func nameOf(e hclsyntax.Expression) string {
	switch e := e.(type) {
	case *hclsyntax.ScopeTraversalExpr:
		return policy.FactOf(e.Traversal)
	case *hclsyntax.ParenthesesExpr:
		return nameOf(e.Expression)
	}
	return "this"
}
