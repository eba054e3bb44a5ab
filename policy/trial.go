package policy

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// trial is a part of a policy that is evaluated on imagined nodes, apart from all other parts: a condition, or the other
// attributes of a block, or blocks that can contradict each other. No mistake depends on two trials.
type trial struct {
	expressions []hcl.Expression
	evaluate    func(node *loader)
}

// mistakesOnNodes returns the mistakes that only some nodes show, without those on all nodes.
func (l *loader) mistakesOnNodes(onAll hcl.Diagnostics) hcl.Diagnostics {
	var diags hcl.Diagnostics
	reported := map[string]bool{}
	for _, d := range onAll {
		reported[d.Subject.String()+d.Summary] = true
	}
	for _, t := range l.trials() {
		for _, facts := range imagine(l.distinct(t.expressions, l.candidates(t.expressions))) {
			found := l.mistakesOn(t, facts)
			for _, key := range slices.Sorted(maps.Keys(found)) {
				if reported[key] {
					continue
				}
				reported[key] = true
				found[key].Detail += l.namingFacts(t, facts, key)
				diags = append(diags, found[key])
			}
		}
	}
	return diags
}

// trials splits the policy into its blocks, and into the pairs of blocks that can contradict each other; where nearly all blocks of a
// group can, the group is one trial. Blocks that read no fact are left out: they have the same mistakes on every node.
func (l *loader) trials() []trial {
	var all []trial
	add := func(blocks ...block) {
		var expressions []hcl.Expression
		for _, b := range blocks {
			expressions = append(expressions, b.expressions()...)
		}
		all = append(all, trial{expressions, func(node *loader) {
			node.blocks = blocks
			node.evaluate()
		}})
	}
	groups := l.groupBlocks()
	for _, g := range groups {
		if len(g.pairs) > 2*len(g.blocks) {
			add(g.blocks...)
			continue
		}
		for _, pair := range g.pairs {
			add(pair[0], pair[1])
		}
		for _, b := range g.blocks {
			if !slices.ContainsFunc(b.expressions(), l.readsFact) {
				continue
			}
			if when := b.get("when"); when != nil {
				all = append(all, trial{[]hcl.Expression{when}, func(node *loader) { node.flag(when, "when", true) }})
				b.Attrs = maps.Clone(b.Attrs)
				delete(b.Attrs, "when")
			}
			add(b)
		}
	}
	return all
}

// group is a set of blocks, and the pairs in it that can contradict each other on some nodes only.
type group struct {
	blocks []block
	pairs  [][2]block
}

// groupBlocks returns the blocks in groups. No block can contradict one of another group.
func (l *loader) groupBlocks() []*group {
	var subjects []subject
	var groups []*group // by the subject
	related := relatedKeys()
	for _, b := range l.blocks {
		if b.Type == "variable" {
			continue
		}
		s, own := l.subjectOf(b, related), &group{blocks: []block{b}}
		for i, o := range subjects {
			if !s.reads && !o.reads || !s.meets(o) {
				continue
			}
			if other := groups[i]; other != own {
				other.blocks, other.pairs = append(other.blocks, own.blocks...), append(other.pairs, own.pairs...)
				for k := range groups {
					if groups[k] == own {
						groups[k] = other
					}
				}
				own = other
			}
			own.pairs = append(own.pairs, [2]block{o.block, b})
		}
		subjects, groups = append(subjects, s), append(groups, own)
	}
	var all []*group
	for _, g := range groups {
		if !slices.Contains(all, g) {
			all = append(all, g)
		}
	}
	return all
}

func (l *loader) readsFact(e hcl.Expression) bool {
	return slices.ContainsFunc(e.Variables(), func(t hcl.Traversal) bool { return l.words.facts[factName(t)] != cty.NilType })
}

// subject is the setting that a block is about. first and second list the rows of relatedKeys that have its key at this position.
type subject struct {
	block
	name          string // of its check
	key           Key    // of a sysctl
	first, second []int
	match         *Match // of a link, if it is the same on every node
	reads         bool   // a fact
}

func (l *loader) subjectOf(b block, related [][2]Key) subject {
	s := subject{block: b, name: b.checkName(), reads: slices.ContainsFunc(b.expressions(), l.readsFact)}
	at := slices.IndexFunc(l.policy.Links, func(link Link) bool { return b.Type == "link" && link.Range == b.Range })
	if at >= 0 && !slices.ContainsFunc(block{Blocks: b.Blocks}.expressions(), l.readsFact) {
		s.match = &l.policy.Links[at].Match
	}
	if b.Type == "sysctl" || b.Type == "sysfs" {
		s.key, _ = b.parameterKey() // evaluation reports the mistake
	}
	for i, row := range related {
		if s.key != "" && sameKey(s.key, row[0]) {
			s.first = append(s.first, i)
		}
		if s.key != "" && sameKey(s.key, row[1]) {
			s.second = append(s.second, i)
		}
	}
	return s
}

// relatedKeys returns the pairs of parameters whose values can contradict each other.
func relatedKeys() [][2]Key {
	all := slices.Concat(aliases(), exclusive(), [][2]Key{{"net/ipv4/ip_local_port_range", "net/ipv4/ip_local_reserved_ports"}})
	for _, o := range orders() {
		all = append(all, [2]Key{o.low, o.high})
	}
	return all
}

// sameKey reports whether one parameter can have both names, which may be globs.
func sameKey(a, b Key) bool {
	if a == b || !a.IsGlob() && !b.IsGlob() {
		return a == b
	}
	one, _ := path.Match(string(a), string(b))
	other, _ := path.Match(string(b), string(a))
	return one || other
}

// meets reports whether two blocks can contradict each other.
func (s subject) meets(o subject) bool {
	switch {
	case s.key != "" && o.key != "":
		return sameKey(s.key, o.key) || shareRow(s.first, o.second) || shareRow(s.second, o.first)
	case s.Type == "link" && o.Type == "sysctl":
		return strings.HasPrefix(string(o.key), "net/") && s.get("sysctl") != nil
	case s.Type == "sysctl" && o.Type == "link":
		return o.meets(s)
	case s.match != nil && o.match != nil && s.match.disjoint(*o.match):
		return false
	case s.Type == "link" || s.Type == "gate" || s.Type == "publish" || s.Type == "audit":
		return s.Type == o.Type
	}
	return s.name != "" && s.name == o.name
}

func shareRow(rows, others []int) bool {
	return slices.ContainsFunc(rows, func(row int) bool { return slices.Contains(others, row) })
}

// mistakesOn returns the mistakes of t on a node with these facts, by position and summary.
func (l *loader) mistakesOn(t trial, facts map[string]any) map[string]*hcl.Diagnostic {
	node := l.imagined(facts)
	t.evaluate(node)
	found := map[string]*hcl.Diagnostic{}
	for _, d := range slices.Concat(node.diags, node.warnings) {
		found[d.Subject.String()+d.Summary] = d
	}
	return found
}

func (l *loader) imagined(facts map[string]any) *loader {
	node := l.forNode(func(name string) (any, bool) { v := facts[name]; return v, v != nil })
	node.paid = true
	return node
}

// namingFacts returns a sentence with the facts that the mistake depends on.
func (l *loader) namingFacts(t trial, facts map[string]any, key string) string {
	facts = maps.Clone(facts)
	for _, name := range slices.Sorted(maps.Keys(facts)) {
		was := facts[name]
		facts[name] = nil
		if l.mistakesOn(t, facts)[key] == nil {
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
	if all == nil {
		return ""
	}
	return " This happens on a node where " + strings.Join(all, " and ") + "."
}

// distinct keeps one of all candidates that no expression can tell apart: a comparison with 8 divides the numbers in two.
func (l *loader) distinct(expressions []hcl.Expression, candidates map[string][]any) map[string][]any {
	w := &factWalker{loader: l, parts: map[string][]hclsyntax.Expression{}, bare: map[string]bool{}}
	for _, e := range expressions {
		if syntax, ok := e.(hclsyntax.Node); ok {
			_ = hclsyntax.Walk(syntax, w)
			continue
		}
		for _, name := range w.factsOf(e.Variables()) { // JSON has no syntax to walk
			w.bare[name] = true
		}
	}
	for name, values := range candidates {
		if w.bare[name] {
			continue
		}
		seen := map[string]bool{}
		candidates[name] = slices.DeleteFunc(values, func(v any) bool {
			node := l.imagined(map[string]any{name: v})
			class := fmt.Sprint(v == nil)
			for _, part := range w.parts[name] {
				class += node.outcome(part)
			}
			was := seen[class]
			seen[class] = true
			return was
		})
	}
	return candidates
}

// outcome returns a string that is the same for equal values of an expression, and for the same mistake in it.
func (l *loader) outcome(e hclsyntax.Expression) string {
	scope, _, _ := l.scopeFor(e)
	v, diags := e.Value(scope)
	if diags.HasErrors() {
		return diags.Error()
	}
	return v.GoString()
}

// factWalker finds the largest parts of expressions that read a single fact. bare lists the facts that are also read by
// a part that has no value of its own, or is only the fact.
type factWalker struct {
	*loader
	parts map[string][]hclsyntax.Expression
	bare  map[string]bool
	below hclsyntax.Node // the part that the walk is in
}

func (w *factWalker) factsOf(all []hcl.Traversal) (names []string) {
	for _, t := range all {
		name := factName(t)
		if w.words.facts[name] == cty.NilType && t.RootName() != "var" {
			name = "" // the variable of a for
		}
		if t.RootName() != "var" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

func (w *factWalker) Enter(n hclsyntax.Node) hcl.Diagnostics {
	e, is := n.(hclsyntax.Expression)
	if w.below != nil || !is {
		return nil
	}
	names := w.factsOf(e.Variables())
	switch _, fact := e.(*hclsyntax.ScopeTraversalExpr); {
	case len(names) == 0:
		w.below = n
	case len(names) == 1 && names[0] != "":
		w.below = n
		w.parts[names[0]] = append(w.parts[names[0]], e)
		w.bare[names[0]] = w.bare[names[0]] || fact
	default:
		if _, splat := e.(*hclsyntax.SplatExpr); splat { // its parts have no values of their own
			w.below = n
			for _, name := range names {
				w.bare[name] = true
			}
		}
	}
	return nil
}

func (w *factWalker) Exit(n hclsyntax.Node) hcl.Diagnostics {
	if w.below == n {
		w.below = nil
	}
	return nil
}
