package policy

import (
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// mostCases bounds the nodes that one condition is evaluated for.
const mostCases = 4096

// checkConditions reports each when that no real node, or every real node, makes true. It judges only a condition that compares
// facts with constants: its truth is known for all nodes then, and not only for the imagined ones.
func (l *loader) checkConditions(reported hcl.Diagnostics) hcl.Diagnostics {
	r := &reader{}
	for _, b := range l.blocks {
		when, is := b.get("when").(hclsyntax.Expression)
		if !is || !l.readsFact(when) || !l.enumerable(when) || slices.ContainsFunc(reported, func(d *hcl.Diagnostic) bool {
			return d.Subject.Filename == when.Range().Filename && d.Subject.Overlaps(when.Range())
		}) {
			continue
		}
		candidates := l.candidates([]hcl.Expression{when})
		for name, values := range candidates {
			candidates[name] = slices.DeleteFunc(values, func(v any) bool { return !isPlausible(name, v) })
		}
		switch always, never := l.truth(when, l.distinct([]hcl.Expression{when}, candidates)); {
		case never:
			r.warnf(when.Range(), "Never true",
				"No node meets this condition, so nodegate never checks %s. Correct the condition, or write when = false.", b.checkName())
		case always:
			r.warnf(when.Range(), "Always true", "Every node meets this condition. Correct it, or remove it.")
		}
	}
	return r.warnings
}

// truth evaluates a condition for all combinations of the values of its facts.
func (l *loader) truth(when hclsyntax.Expression, candidates map[string][]any) (always, never bool) {
	nodes := []map[string]any{{}}
	for name, values := range candidates {
		var more []map[string]any
		for _, node := range nodes {
			for _, v := range values {
				with := map[string]any{name: v}
				for other, value := range node {
					with[other] = value
				}
				more = append(more, with)
			}
		}
		if nodes = more; len(nodes) > mostCases || len(nodes) == 0 {
			return false, false
		}
	}
	always, never = true, true
	for _, node := range nodes {
		v, known := l.imagined(node).value(when)
		always = always && known && v.Type() == cty.Bool && v.True()
		never = never && (!known || v.Type() != cty.Bool || !v.True())
	}
	return always, never
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

// isPlausible reports whether a real node can have this fact. The bounds are wide: Go's runtime needs Linux 3.2 (go.dev/wiki/Linux,
// go1.24), which gains a major version in three or four years; no kernel is built for more than 8192 CPUs (CONFIG_NR_CPUS).
func isPlausible(name string, v any) bool {
	text, _ := v.(string)
	number, _ := v.(int64)
	between := func(low, high string) bool {
		at, err := versionNumbers(text)
		from, _ := versionNumbers(low)
		to, _ := versionNumbers(high)
		return err == nil && slices.Compare(at, from) >= 0 && slices.Compare(at, to) < 0
	}
	switch name {
	case "node.cpus":
		return number >= 1 && number <= 8192
	case "node.memory":
		return number >= 1<<20
	case "systemd.version":
		return number >= 200 && number < 1000
	case "kernel.version", "kernel.release":
		return between("3.2", "20")
	case "kubelet.version":
		return between("1", "3")
	}
	if words := closedWords(name); words != nil {
		return v != nil && slices.Contains(words, text)
	}
	return v != nil && strings.TrimSpace(text) == text
}

// closedWords returns all values of a fact, or nil if it can have others.
func closedWords(fact string) []string {
	switch fact {
	case "cloud.provider":
		return []string{"aws", "gcp", "azure", "openstack", "hetzner", "digitalocean", "alibaba", ""}
	case "kube_proxy.mode":
		return []string{"iptables", "nftables", "ipvs", "userspace", "kernelspace", ""}
	}
	return nil
}
