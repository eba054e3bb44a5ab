package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
)

// checkTypes returns the operands, conditions and arguments whose types do not fit,
// whatever the facts are, on every branch of every expression. HCL would convert
// texts when the node evaluates the expression, and fail there.
func (l *loader) checkTypes() hcl.Diagnostics {
	c := &typeChecker{reader: &reader{Options: l.Options, vars: l.vars}}
	for _, e := range l.expressions() {
		syntax, ok := e.(hclsyntax.Node)
		if !ok || len(e.Variables()) == 0 {
			continue // JSON has no syntax to walk
		}
		said := len(c.diags)
		scope, _, ok := c.scopeFor(e)
		if c.EvalContext = scope; ok {
			_ = hclsyntax.Walk(syntax, c)
		} else {
			c.diags = c.diags[:said] // evaluation says the same
		}
	}
	return append(c.diags, c.warnings...)
}

type typeChecker struct {
	*reader
	*hcl.EvalContext
	trying int // open can() and try(), in which an error is no mistake
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

// bytes reports memory that is compared with what can only be meant as GiB.
func (c *typeChecker) checkMemory(fact, e hclsyntax.Expression) {
	v, diags := e.Value(nil)
	if nameOf(fact) != "node.memory" || diags.HasErrors() || v.IsNull() || v.Type() != cty.Number {
		return
	}
	if n, _ := v.AsBigFloat().Float64(); n < 1<<20 {
		c.warnf(e.Range(), "Bytes",
			"node.memory is in bytes: every node has more than that. Write %s * 1024 * 1024 * 1024 for GiB.", v.AsBigFloat().Text('f', -1))
	}
}

func countTry(n hclsyntax.Node) int {
	if call, is := n.(*hclsyntax.FunctionCallExpr); is && (call.Name == "can" || call.Name == "try") {
		return 1
	}
	return 0
}

// typeOf returns the type of an expression whatever the facts are, and whether its
// value depends on them. What cannot be told (the local name of a "for") is dynamic:
// the imagined nodes will show.
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

// operand reports an operand that is converted to the type that its operator needs.
// less says that the expression compares it as the smaller one.
func (c *typeChecker) checkOperand(e, other hclsyntax.Expression, want cty.Type, less bool, at hcl.Range) {
	t, depends := c.typeOf(e)
	if !depends || !t.IsPrimitiveType() || t == want {
		return
	}
	detail := fmt.Sprintf("%s is %s where %s is needed; the node could not convert it.", nameOf(e), withArticle(t), withArticle(want))
	if v := nameOf(e); other != nil && want == cty.Number && (strings.HasSuffix(v, "version") || v == "kernel.release") {
		least := "LEAST"
		if value, diags := other.Value(c.EvalContext); !diags.HasErrors() && value.IsWhollyKnown() && value.Type() == cty.String {
			least = value.AsString()
		} else if !diags.HasErrors() && value.IsWhollyKnown() && value.Type() == cty.Number {
			least = value.AsBigFloat().Text('f', -1)
		}
		not := ""
		if less {
			not = "!"
		}
		detail = fmt.Sprintf("%s is a text such as %q, no number: write %sversion_at_least(%s, %q).", v, typicalValues(v)[1], not, v, least)
	}
	c.errorf(at, "Wrong type", "%s", detail)
}

// divisor reports one that may be zero: only a fact, and what has a least value, cannot.
func (c *typeChecker) checkDivisor(e hclsyntax.Expression) {
	if p, is := e.(*hclsyntax.ParenthesesExpr); is {
		e = p.Expression
	}
	if v, diags := e.Value(c.EvalContext); !diags.HasErrors() && v.IsWhollyKnown() && v.Type() == cty.Number && v.AsBigFloat().Sign() == 0 {
		c.errorf(e.Range(), "Division by zero", "The divisor is zero.")
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
	c.errorf(e.Range(), "Division by zero", "The divisor can be zero, depending on the node: write max(1, ...) around it.")
}

// equality reports two sides that are never equal, because their types differ.
func (c *typeChecker) checkEquality(n *hclsyntax.BinaryOpExpr) {
	left, dependsLeft := c.typeOf(n.LHS)
	right, dependsRight := c.typeOf(n.RHS)
	c.checkPossible(nameOf(n.LHS), n.RHS)
	c.checkPossible(nameOf(n.RHS), n.LHS)
	if !dependsLeft && !dependsRight || !left.IsPrimitiveType() || !right.IsPrimitiveType() || left == right {
		return
	}
	c.errorf(n.Range(), "Wrong type", "%s is %s and %s is %s: they are never equal.%s", nameOf(n.LHS), withArticle(left), nameOf(n.RHS),
		withArticle(right), suggestLiteral(n.LHS, left, n.RHS)+suggestLiteral(n.RHS, right, n.LHS))
}

// possible reports a text that a fact never is. The versions of the kernel and of kubelet
// have three numbers nearly everywhere.
func (c *typeChecker) checkPossible(fact string, e hclsyntax.Expression) {
	v, diags := e.Value(nil)
	if diags.HasErrors() || v.Type() != cty.String || v.IsNull() {
		return
	}
	text := v.AsString()
	words := map[string][]string{
		"cloud.provider":  {"aws", "gcp", "azure", "openstack", "hetzner", "digitalocean", "alibaba", ""},
		"kube_proxy.mode": {"iptables", "nftables", "ipvs", "userspace", "kernelspace", ""},
	}[fact]
	switch {
	case words != nil && !slices.Contains(words, text):
		c.errorf(e.Range(), "Wrong value", "%s is never %q; it is one of %s.%s",
			fact, text, strings.Join(quoted(words), ", "), Nearest(text, words))
	case fact == "os.id" && strings.ToLower(strings.TrimSpace(text)) != text:
		c.errorf(e.Range(), "Wrong value", "os.id is never %q: os-release(5) has it in lower case. Write %q.",
			text, strings.ToLower(strings.TrimSpace(text)))
	case fact == "os.version" && strings.Trim(text, "0123456789.") == text && text != "":
		c.warnf(e.Range(), "Never equal", "os.version is a number such as %q; the distribution is os.id, the code name no fact.", typicalValues(fact)[1])
	case fact == "cni.name" && slices.Contains([]string{"flannel", "calico"}, text):
		c.warnf(e.Range(), "Never equal", "cni.name is the \"name\" in the CNI's file; %s's own manifest writes %q.", text,
			map[string]string{"flannel": "cbr0", "calico": "k8s-pod-network"}[text])
	case (fact == "kernel.version" || fact == "kubelet.version") && strings.Count(text, ".") < 2:
		c.warnf(e.Range(), "Never equal", "%s is a text such as %q: write version_at_least(%[1]s, %[3]q).", fact, typicalValues(fact)[1], text)
	}
}

// quoteIt suggests how to write a literal that is compared with a text.
func suggestLiteral(of hclsyntax.Expression, other cty.Type, e hclsyntax.Expression) string {
	v, diags := e.Value(nil)
	if diags.HasErrors() || other != cty.String || v.Type() != cty.Number {
		return ""
	}
	if fact := nameOf(of); fact == "kernel.version" || fact == "kubelet.version" {
		return fmt.Sprintf(" Write version_at_least(%s, %q).", fact, v.AsBigFloat().Text('f', -1))
	}
	return fmt.Sprintf(" Write %q.", v.AsBigFloat().Text('f', -1))
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
		if n.Name == "version_at_least" && !diags.HasErrors() && v.IsWhollyKnown() && v.Type() == cty.String {
			if _, err := versionNumbers(v.AsString()); err != nil {
				c.errorf(arg.Range(), "Not a version", "%s.", capitalize(err.Error()))
			}
		}
	}
	if n.Name == "version_at_least" && len(n.Args) == 2 {
		_, first := c.typeOf(n.Args[0])
		if _, second := c.typeOf(n.Args[1]); second && !first {
			c.warnf(n.Range(), "Turned round",
				"This asks whether %s is no newer than that. Write version_at_least(%[1]s, LEAST), or ! before it.", nameOf(n.Args[1]))
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

// contains reports a list in which no value has the type of what is looked for.
func (c *typeChecker) checkContains(n *hclsyntax.FunctionCallExpr) {
	list, _ := c.typeOf(n.Args[0])
	what, depends := c.typeOf(n.Args[1])
	switch {
	case list.IsPrimitiveType():
		c.errorf(n.Args[0].Range(), "Wrong type",
			"contains looks into a list, for example [\"debian\", \"ubuntu\"]; this is %s.", withArticle(list))
	case list.IsTupleType() && depends && what.IsPrimitiveType() && list.Length() > 0:
		for _, t := range list.TupleElementTypes() {
			if t == what || !t.IsPrimitiveType() {
				return
			}
		}
		c.errorf(n.Args[0].Range(), "Wrong type", "%s is %s, and the list has none: it never contains it.", nameOf(n.Args[1]), withArticle(what))
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

// name returns what an expression is called in a message: a fact by its name.
func nameOf(e hclsyntax.Expression) string {
	switch e := e.(type) {
	case *hclsyntax.ScopeTraversalExpr:
		return factName(e.Traversal)
	case *hclsyntax.ParenthesesExpr:
		return nameOf(e.Expression)
	}
	return "this"
}
