package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"nodegate/policy/kernels"
)

// Lint returns the mistakes in a policy, including those that only some nodes would show. It
// reports names that no kernel has and types that do not match on any branch of an expression,
// and loads the policy on usualNodes.
func Lint(files []File, o Options) hcl.Diagnostics {
	l, diags := lint(files, o)
	return l.acknowledge(diags)
}

// Advise is Lint with warnings about parts that are valid but probably not intended. It returns the policy if it has no mistake.
func Advise(files []File, o Options) (*Policy, hcl.Diagnostics) {
	l, diags := lint(files, o)
	p := &Policy{}
	for _, f := range files {
		p.Files = append(p.Files, f.Name)
	}
	if !diags.HasErrors() {
		p, _ = Load(files, o) // its warnings are among those of lint
		diags = append(diags, p.Advice()...)
	}
	return p, l.acknowledge(diags)
}

func lint(files []File, o Options) (*loader, hcl.Diagnostics) {
	o.Fact = nil
	l := read(files, o)
	catalogue, err := kernels.Read()
	if err != nil {
		return l, hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "No catalogue of kernels", Detail: err.Error()}}
	}
	l.catalogue, l.names = catalogue, true
	l.words.named = map[hcl.Expression][]string{}
	l.evaluate()
	diags := slices.Concat(l.diags, l.checkTypes(), l.warnings, l.findIneffective())
	if diags.HasErrors() {
		if l.stopped || !l.hasRead(files) { // the other blocks would lack these files' variables
			return l, diags
		}
		l.blocks = slices.DeleteFunc(slices.Clone(l.blocks), func(b block) bool { return slices.ContainsFunc(diags, b.hasError) })
	}
	v := &survey{loader: l, answers: map[hcl.Range][]answer{}, reported: map[string]bool{}}
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

// hasRead reports whether all files were parsed.
func (l *loader) hasRead(files []File) bool {
	return !slices.ContainsFunc(files, func(f File) bool { return !slices.Contains(l.policy.Files, f.Name) })
}

// hasError reports whether d is an error inside the block.
func (b block) hasError(d *hcl.Diagnostic) bool {
	return d.Severity == hcl.DiagError && b.contains(d.Subject)
}

// contains reports whether a position is inside the block.
func (b block) contains(at *hcl.Range) bool {
	if at == nil {
		return false
	}
	ranges := []hcl.Range{b.Range}
	if body, native := b.Body.(*hclsyntax.Body); native {
		ranges = append(ranges, body.SrcRange)
	}
	for _, e := range b.expressions() {
		ranges = append(ranges, e.Range()) // an override may be in another file
	}
	return slices.ContainsFunc(ranges, func(r hcl.Range) bool { return r.Filename == at.Filename && r.Overlaps(*at) })
}

// survey loads a policy on many nodes.
type survey struct {
	*loader
	answers  map[hcl.Range][]answer // by block
	diags    hcl.Diagnostics
	reported map[string]bool
}

// answer holds the requirement of a block on one node.
type answer struct {
	facts map[string]any
	*Policy
}

// load evaluates the policy on a node, and records the mistakes that are new.
func (v *survey) load(facts map[string]any) {
	node := v.on(facts)
	node.blocks = v.blocks
	node.decode()
	for _, s := range node.policy.Sysctls {
		if s.Applies() {
			v.answers[s.Range] = append(v.answers[s.Range], answer{facts, &Policy{Sysctls: []Sysctl{s}}})
		}
	}
	for _, k := range node.policy.Links {
		if k.Applies() {
			v.answers[k.Range] = append(v.answers[k.Range], answer{facts, &Policy{Links: []Link{k}}})
		}
	}
	node.conclude()
	for _, d := range slices.Concat(node.diags, node.warnings) {
		key := mistakeKey(d)
		if v.reported[key] {
			continue
		}
		v.reported[key] = true
		concerned := func(b block) bool { return b.contains(d.Subject) || strings.Contains(d.Detail, place(b.Range)) }
		var read []hcl.Expression
		for _, b := range applying(v.blocks, concerned) {
			read = append(read, b.expressions()...)
		}
		if on := onNode(" This happens on %s.", facts, read...); on != "" { // otherwise it follows from a mistake that is reported
			d.Detail += on
			v.diags = append(v.diags, d)
		}
	}
}

// checkUnused reports variables that no block reads.
func (l *loader) checkUnused() hcl.Diagnostics {
	r := &reader{}
	for _, b := range l.blocks {
		if b.Type == "variable" && !b.isBuiltin() && !readsAny(append(l.expressions(), l.acknowledging...), "var."+b.Name) {
			r.warnf(b.Range, "Unused variable", "No block reads var.%s, so a value for it changes nothing. Use it, or remove it.", b.Name)
		}
	}
	return r.warnings
}

func mistakeKey(d *hcl.Diagnostic) string { return d.Subject.String() + d.Summary }

// on returns a loader of the same blocks for a node with these facts.
func (l *loader) on(facts map[string]any) *loader {
	node := l.forNode(func(name string) (any, bool) { v := facts[name]; return v, v != nil })
	node.paid = true
	return node
}

// onNode describes a node by the facts that expressions read, or returns "" if they read none.
func onNode(format string, facts map[string]any, read ...hcl.Expression) string {
	named := map[string]string{}
	for _, e := range read {
		for _, t := range e.Variables() {
			switch name := factName(t); v := facts[name].(type) {
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
		add(content.Attributes)
	}
	return all
}
