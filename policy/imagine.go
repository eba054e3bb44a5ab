package policy

import (
	"cmp"
	"fmt"
	"maps"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"nodegate/policy/kernels"
)

// Lint returns the mistakes in a policy, including those that only some nodes would show. It
// reports names that no kernel has and types that do not match on any branch of an expression,
// and evaluates the policy for imagined nodes. The facts of these nodes take the values that the
// policy compares them with and the values of real nodes. The nodes cover all pairs of values of
// every two facts.
func Lint(files []File, o Options) hcl.Diagnostics {
	o.Fact = nil
	l := read(files, o)
	catalogue, err := kernels.Read()
	if err != nil {
		return hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "No catalogue of kernels", Detail: err.Error()}}
	}
	l.catalogue, l.names = catalogue, true
	l.evaluate()
	diags := slices.Concat(l.diags, l.checkTypes(), l.warnings, l.findIneffective())
	diags = append(diags, checkLookAlikes(files, diags)...)
	if diags.HasErrors() {
		if l.stopped || !l.hasRead(files) { // the other blocks would lack what these files have
			return diags
		}
		l.blocks = slices.DeleteFunc(slices.Clone(l.blocks), func(b block) bool { return slices.ContainsFunc(diags, b.hasError) })
	}
	diags = append(diags, l.mistakesOnNodes(diags)...)
	diags = append(diags, l.checkMemory()...)
	diags = append(diags, l.checkDomains()...)
	return append(diags, l.checkConditions(diags)...)
}

// hasRead reports whether all files were parsed.
func (l *loader) hasRead(files []File) bool {
	return !slices.ContainsFunc(files, func(f File) bool { return !slices.Contains(l.policy.Files, f.Name) })
}

// hasError reports whether d is an error inside the block.
func (b block) hasError(d *hcl.Diagnostic) bool {
	if d.Severity != hcl.DiagError || d.Subject == nil {
		return false
	}
	ranges := []hcl.Range{b.Range}
	if body, native := b.Body.(*hclsyntax.Body); native {
		ranges = append(ranges, body.SrcRange)
	}
	for _, e := range b.expressions() {
		ranges = append(ranges, e.Range()) // an override may be in another file
	}
	return slices.ContainsFunc(ranges, func(r hcl.Range) bool { return r.Filename == d.Subject.Filename && r.Overlaps(*d.Subject) })
}

// Limits on the imagined nodes, and on the numbers that are combined.
const (
	mostNodes    = 2000
	mostLiterals = 12
)

// imagine returns nodes that cover all pairs of values of every two facts. The other facts of
// each node are random.
func imagine(candidates map[string][]any) []map[string]any {
	names := slices.Sorted(maps.Keys(candidates))
	random := rand.New(rand.NewPCG(1, 2)) // the same nodes each time
	var nodes []map[string]any
	with := func(fixed map[string]any) {
		node := map[string]any{}
		for _, name := range names {
			node[name] = candidates[name][random.IntN(len(candidates[name]))]
		}
		maps.Copy(node, fixed)
		nodes = append(nodes, node)
	}
	pairs := 0
	for i, a := range names {
		for _, b := range names[i+1:] {
			pairs += len(candidates[a]) * len(candidates[b])
		}
	}
	if len(names) == 0 {
		return []map[string]any{{}}
	}
	for i, a := range names {
		for _, va := range candidates[a] {
			with(map[string]any{a: va})
			for _, b := range names[i+1:] {
				for _, vb := range candidates[b] {
					if pairs <= mostNodes || random.IntN(pairs) < mostNodes {
						with(map[string]any{a: va, b: vb})
					}
				}
			}
		}
	}
	return nodes
}

// typicalValues returns values of a fact on real nodes, and its extreme values.
func typicalValues(name string) []any {
	switch name {
	case "node.cpus":
		return []any{int64(1), int64(2), int64(7), int64(64), int64(8192)}
	case "node.memory": // a whole number of KiB
		return []any{int64(1 << 20), int64(1015131 << 10), int64(16333835 << 10), int64(1 << 45)}
	case "systemd.version":
		return []any{int64(219), int64(252), int64(257), int64(200), int64(999)}
	case "kernel.release":
		return []any{"4.18.0-553.el8_10.x86_64", "6.1.0-28-cloud-amd64", "6.12.9", "3.2.0-4-amd64", "19.0"}
	case "kernel.version":
		return []any{"3.10.0", "5.4.41", "6.1.0", "10.0.1", "3.2.0", "19.0"}
	case "os.id":
		return []any{"debian", "amzn", "", "12", "-"}
	case "os.version":
		return []any{"12", "24.04", "2023", "", "rolling", "-"}
	case "kubelet.version":
		return []any{"1.9.11", "1.34.1", "1.0.0", "2.99.0"}
	case "cloud.provider":
		return []any{"", "aws", "gcp", "12", "-"}
	case "kube_proxy.mode":
		return []any{"iptables", "", "12", "-"}
	}
	return []any{"cbr0", "", "12", "-"}
}

// candidates returns, for each fact that the expressions name, the values to imagine: unknown (nil),
// the typical ones, and the literals of the expressions with their neighbours.
func (l *loader) candidates(of []hcl.Expression) map[string][]any {
	var texts, numbers []any
	named := map[string][]any{}
	for _, e := range of {
		for _, t := range e.Variables() {
			if name := factName(t); l.words.facts[name] != cty.NilType && named[name] == nil {
				named[name] = append([]any{nil}, typicalValues(name)...)
			}
		}
		syntax, ok := e.(hclsyntax.Node)
		if !ok {
			continue
		}
		_ = hclsyntax.VisitAll(syntax, func(n hclsyntax.Node) hcl.Diagnostics {
			switch v := l.constant(n); {
			case v == cty.NilVal:
			case v.Type() == cty.String:
				texts = append(texts, v.AsString())
			case v.Type() == cty.Number:
				numbers = append(numbers, neighbours(v.AsBigFloat())...)
			}
			return nil
		})
	}
	for _, a := range numbers[:min(len(numbers), mostLiterals)] { // the values at which node.cpus * A == B
		for _, b := range numbers[:min(len(numbers), mostLiterals)] {
			numbers = append(numbers, max(1, b.(int64)/a.(int64)))
		}
	}
	for name, values := range named {
		if l.words.facts[name] == cty.Number {
			named[name] = append(values, numbers...)
			continue
		}
		for _, t := range texts {
			version := strings.HasSuffix(name, "version") || name == "kernel.release"
			if _, err := versionNumbers(t.(string)); err == nil && version {
				values = append(values, t, t.(string)+".1", "1."+t.(string))
			} else if !version || name == "os.version" {
				values = append(values, t)
			}
		}
		named[name] = values
	}
	for name, values := range named {
		slices.SortFunc(values[1:], func(a, b any) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		named[name] = slices.Compact(values)
	}
	return named
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

// neighbours returns a number and the numbers next to it that a fact can have.
func neighbours(f *big.Float) []any {
	n, _ := f.Int64()
	var all []any
	for _, near := range []int64{n - 1, n, n + 1} {
		if near > 0 && near < 1<<50 {
			all = append(all, near)
		}
	}
	return all
}

func factName(t hcl.Traversal) string {
	if len(t) > 1 {
		if a, is := t[1].(hcl.TraverseAttr); is {
			return t.RootName() + "." + a.Name
		}
	}
	return t.RootName() + "."
}

// expressions returns every expression that depends on the node.
func (l *loader) expressions() []hcl.Expression {
	var all []hcl.Expression
	for _, b := range l.blocks {
		if b.Type != "variable" {
			all = append(all, b.expressions()...)
		}
	}
	return all
}

// expressions returns the expressions of a block and of the blocks in it.
func (b block) expressions() []hcl.Expression {
	var all []hcl.Expression
	add := func(attrs hcl.Attributes) {
		for _, name := range slices.Sorted(maps.Keys(attrs)) {
			all = append(all, attrs[name].Expr)
		}
	}
	add(b.Attrs)
	for _, inner := range b.Blocks {
		content, _ := inner.Body.Content(blockSchema(inner.Type)) // evaluation reports its mistakes
		add(native(content.Attributes))
	}
	return all
}
