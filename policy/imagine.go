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
	if diags.HasErrors() {
		return diags
	}
	reported := map[string]bool{}
	for _, facts := range imagine(l.candidates()) {
		for key, d := range l.mistakesOn(facts) {
			if !reported[key] {
				reported[key] = true
				d.Detail += l.namingFacts(facts, key)
				diags = append(diags, d)
			}
		}
	}
	return diags
}

// mistakesOn returns the mistakes on a node with these facts, by position and summary.
func (l *loader) mistakesOn(facts map[string]any) map[string]*hcl.Diagnostic {
	node := l.forNode(func(name string) (any, bool) { v := facts[name]; return v, v != nil })
	node.evaluate()
	found := map[string]*hcl.Diagnostic{}
	for _, d := range node.diags {
		found[d.Subject.String()+d.Summary] = d
	}
	return found
}

// namingFacts returns a sentence with the facts that the mistake depends on.
func (l *loader) namingFacts(facts map[string]any, key string) string {
	facts = maps.Clone(facts)
	for _, name := range slices.Sorted(maps.Keys(facts)) {
		was := facts[name]
		facts[name] = nil
		if l.mistakesOn(facts)[key] == nil {
			facts[name] = was
		}
	}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(facts)) {
		switch v := facts[name].(type) {
		case nil:
		case string:
			all = append(all, fmt.Sprintf("%s is %q", name, v))
		default:
			all = append(all, fmt.Sprintf("%s is %d", name, v))
		}
	}
	return " This happens on a node where " + strings.Join(all, " and ") + "."
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
	for i, a := range names {
		for _, va := range candidates[a] {
			with(map[string]any{a: va})
			for _, b := range names[i+1:] {
				for _, vb := range candidates[b] {
					with(map[string]any{a: va, b: vb})
				}
			}
		}
	}
	if len(nodes) > mostNodes {
		random.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
		nodes = nodes[:mostNodes]
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
		return []any{int64(219), int64(252), int64(257)}
	case "kernel.release":
		return []any{"4.18.0-553.el8_10.x86_64", "6.1.0-28-cloud-amd64", "6.12.9"}
	case "kernel.version":
		return []any{"3.10.0", "5.4.41", "6.1.0", "10.0.1"}
	case "os.id":
		return []any{"debian", "amzn", "", "12", "-"}
	case "os.version":
		return []any{"12", "24.04", "2023", "", "rolling", "-"}
	case "kubelet.version":
		return []any{"1.9.11", "1.34.1"}
	case "cloud.provider":
		return []any{"", "aws", "12", "-"}
	case "kube_proxy.mode":
		return []any{"iptables", "", "12", "-"}
	}
	return []any{"cbr0", "", "12", "-"}
}

// candidates returns, for each fact that the policy names, the values to imagine: unknown (nil),
// the typical ones, and the policy's own literals with their neighbours.
func (l *loader) candidates() map[string][]any {
	var texts, numbers []any
	named := map[string][]any{}
	for _, e := range l.expressions() {
		for _, t := range e.Variables() {
			if name := factName(t); factTypes()[name] != cty.NilType {
				named[name] = append([]any{nil}, typicalValues(name)...)
			}
		}
		syntax, ok := e.(hclsyntax.Node)
		if !ok {
			continue
		}
		_ = hclsyntax.VisitAll(syntax, func(n hclsyntax.Node) hcl.Diagnostics {
			if lit, is := n.(*hclsyntax.LiteralValueExpr); is && !lit.Val.IsNull() && lit.Val.IsKnown() {
				switch lit.Val.Type() {
				case cty.String:
					texts = append(texts, lit.Val.AsString())
				case cty.Number:
					numbers = append(numbers, neighbours(lit.Val.AsBigFloat())...)
				}
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
		if factTypes()[name] == cty.Number {
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
	add := func(attrs hcl.Attributes) {
		for _, name := range slices.Sorted(maps.Keys(attrs)) {
			all = append(all, attrs[name].Expr)
		}
	}
	for _, b := range l.blocks {
		if b.Type == "variable" {
			continue
		}
		add(b.Attrs)
		for _, inner := range b.Blocks {
			content, _ := inner.Body.Content(blockSchema(inner.Type)) // evaluation reports its mistakes
			add(content.Attributes)
		}
	}
	return all
}
