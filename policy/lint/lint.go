// Package lint judges a policy for `nodegate lint`: names and values that no kernel has, values that harm a node, types that do not match
// on any branch of an expression, and mistakes that only some nodes would show. The gate does not need it.
package lint

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"nodegate/policy"
	"nodegate/policy/kernels"
)

// Lint returns the mistakes in a policy, including those that only some nodes would show. It
// reports names that no kernel has and types that do not match on any branch of an expression,
// and loads the policy on usualNodes.
func Lint(files []policy.File, o policy.Options) hcl.Diagnostics {
	l, diags := lint(files, o)
	return l.acknowledge(diags)
}

// Advise is Lint with warnings about parts that are valid but probably not intended. It returns the policy if it has no mistake.
func Advise(files []policy.File, o policy.Options) (*policy.Policy, hcl.Diagnostics) {
	l, diags := lint(files, o)
	p := &policy.Policy{}
	for _, f := range files {
		p.Files = append(p.Files, f.Name)
	}
	if !diags.HasErrors() {
		p, _ = policy.Load(files, o) // its warnings are among those of lint
		diags = append(diags, Advice(p)...)
	}
	return p, l.acknowledge(diags)
}

// linter holds a policy and what its lint blocks allow.
type linter struct {
	policy.Source
	options      policy.Options
	catalogue    *kernels.Catalogue
	blocks       []policy.Stanza // those to judge
	at           map[hcl.Range]policy.Stanza
	allowed      []string    // allow_names, as comparableName spells them
	acknowledged [][2]string // a warning's id, and a glob for the name of its block
}

func lint(files []policy.File, o policy.Options) (*linter, hcl.Diagnostics) {
	o.Fact = nil
	l := &linter{Source: policy.Read(files, o), options: o, at: map[hcl.Range]policy.Stanza{}}
	catalogue, err := kernels.Read()
	if err != nil {
		return l, hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "No catalogue of kernels", Detail: err.Error()}}
	}
	l.catalogue, l.blocks = catalogue, l.Stanzas()
	for _, b := range l.blocks {
		l.at[b.Range] = b
	}
	before := &reading{linter: l}
	before.readLint()
	l.blocks = slices.DeleteFunc(slices.Clone(l.blocks), before.hasValueInName)
	r := l.read(nil)
	if r.policy != nil {
		r.checkNames()
		r.merge()
	}
	diags := slices.Concat(before.diags, r.diags, l.checkTypes(), r.warnings, l.findIneffective())
	if diags.HasErrors() {
		if r.policy == nil || len(r.policy.Files) < len(files) { // the other blocks would lack these files' variables
			return l, diags
		}
		l.blocks = slices.DeleteFunc(l.blocks, func(b policy.Stanza) bool {
			return slices.ContainsFunc(diags, func(d *hcl.Diagnostic) bool { return hasError(b, d) })
		})
	}
	v := &survey{linter: l, merged: r.policy, answers: map[hcl.Range][]answer{}, reported: map[string]bool{}}
	for _, d := range diags {
		v.reported[mistakeKey(d)] = true
	}
	for _, facts := range slices.Concat(usualNodes(), withoutOneFact()) {
		v.load(facts)
	}
	diags = append(diags, v.diags...)
	diags = append(diags, v.checkMemory()...)
	diags = append(diags, v.checkDomains()...)
	if !diags.HasErrors() { // a name may be misspelt
		diags = append(diags, l.checkUnused()...)
	}
	return l, diags
}

// hasError reports whether d is an error inside the block.
func hasError(b policy.Stanza, d *hcl.Diagnostic) bool {
	return d.Severity == hcl.DiagError && contains(b, d.Subject)
}

// contains reports whether a position is inside the block.
func contains(b policy.Stanza, at *hcl.Range) bool {
	if at == nil {
		return false
	}
	ranges := []hcl.Range{b.Range}
	if body, native := b.Body.(*hclsyntax.Body); native {
		ranges = append(ranges, body.SrcRange)
	}
	for _, e := range b.Expressions() {
		ranges = append(ranges, e.Range()) // an override may be in another file
	}
	return slices.ContainsFunc(ranges, func(r hcl.Range) bool { return r.Filename == at.Filename && r.Overlaps(*at) })
}

// survey loads a policy on many nodes.
type survey struct {
	*linter
	merged   *policy.Policy         // with all facts unknown
	answers  map[hcl.Range][]answer // by block
	diags    hcl.Diagnostics
	reported map[string]bool
}

// answer holds the requirement of a block on one node.
type answer struct {
	facts map[string]any
	*policy.Policy
}

// load evaluates the policy on a node, and records the mistakes that are new.
func (v *survey) load(facts map[string]any) {
	node := v.read(from(facts))
	for _, s := range node.policy.Sysctls {
		if s.Applies() {
			v.answers[s.Range] = append(v.answers[s.Range], answer{facts, &policy.Policy{Sysctls: []policy.Sysctl{s}}})
		}
	}
	for _, k := range node.policy.Links {
		if k.Applies() {
			v.answers[k.Range] = append(v.answers[k.Range], answer{facts, &policy.Policy{Links: []policy.Link{k}}})
		}
	}
	node.merge()
	for _, d := range slices.Concat(node.diags, node.warnings) {
		key := mistakeKey(d)
		if v.reported[key] {
			continue
		}
		v.reported[key] = true
		concerned := func(b policy.Stanza) bool {
			return contains(b, d.Subject) || strings.Contains(d.Detail, policy.Place(b.Range))
		}
		var read []hcl.Expression
		for _, b := range those(v.blocks, concerned) {
			read = append(read, b.Expressions()...)
		}
		if on := onNode(" This happens on %s.", facts, read...); on != "" { // otherwise it follows from a mistake that is reported
			d.Detail += on
			v.diags = append(v.diags, d)
		}
	}
}

// checkUnused reports variables that no block reads.
func (l *linter) checkUnused() hcl.Diagnostics {
	r := &reading{}
	for _, b := range l.blocks {
		if b.Type == "variable" && !b.IsBuiltin() && !readsAny(l.expressions(), "var."+b.Name) {
			r.warnf(b.Range, "Unused variable", "No block reads var.%s, so a value for it changes nothing. Use it, or remove it.", b.Name)
		}
	}
	return r.warnings
}

func mistakeKey(d *hcl.Diagnostic) string { return d.Subject.String() + d.Summary }

// from returns a function that returns these facts.
func from(facts map[string]any) func(name string) (any, bool) {
	return func(name string) (any, bool) { v := facts[name]; return v, v != nil }
}

// onNode describes a node by the facts that expressions read, or returns "" if they read none.
func onNode(format string, facts map[string]any, read ...hcl.Expression) string {
	named := map[string]string{}
	for _, e := range read {
		for _, t := range e.Variables() {
			switch name := policy.FactOf(t); v := facts[name].(type) {
			case nil:
			case string:
				named[name] = fmt.Sprintf("%s %q", name, v)
			case int64:
				named[name] = map[string]string{"node.cpus": fmt.Sprintf("%d CPUs", v), "node.memory": inGiB(float64(v)) + " of memory",
					"systemd.version": fmt.Sprintf("systemd %d", v)}[name]
			}
		}
	}
	if len(named) == 0 {
		return ""
	}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(named)) {
		all = append(all, named[name])
	}
	return strings.Replace(fmt.Sprintf(format, "a node with "+inWords(all)), " 1 CPUs", " 1 CPU", 1)
}

// expressions returns every expression that depends on the node.
func (l *linter) expressions() []hcl.Expression {
	var all []hcl.Expression
	for _, b := range l.blocks {
		if b.Type != "variable" {
			all = append(all, b.Expressions()...)
		}
	}
	return all
}

// those returns the elements that a condition is true for.
func those[T any](all []T, is func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(all), func(one T) bool { return !is(one) })
}
