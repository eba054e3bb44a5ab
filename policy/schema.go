package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// The blocks of a policy file and their attributes.

// Stanza is one block of a file. Attributes are kept as expressions, so that every message about a value points at the value.
type Stanza struct {
	Type     string
	Name     string    // its label, or ""
	Former   string    // the label as written, if it is the former name of a check
	Range    hcl.Range // position of the label, or of the block's first line
	Override hcl.Range // position of the override that changed it, if any
	Rank     int       // of its file: a block of a lower rank replaces or overrides it
	Body     hcl.Body
	Attrs    hcl.Attributes
	Blocks   hcl.Blocks
}

// Get returns an attribute's expression, or nil if it is not set.
func (b Stanza) Get(name string) hcl.Expression {
	if a, ok := b.Attrs[name]; ok {
		return a.Expr
	}
	return nil
}

// OfBuiltin is the rank of built-in policies. A file that no use block names has rank 0, and a base one more than the file that uses it.
const OfBuiltin = 1 << 20

// IsBuiltin reports whether the block is in a built-in policy.
func (b Stanza) IsBuiltin() bool { return b.Rank == OfBuiltin }

// winner returns the block of the lowest rank of those with a type and a name that a policy can have once, or nil. It reports another
// block of that rank.
func (l *loader) winner(blockType, name string) (first *Stanza) {
	for _, b := range l.blocks {
		if b.Type == blockType && b.Name == name && (first == nil || b.Rank < first.Rank) {
			first = &b
		}
	}
	for _, b := range l.blocks {
		switch {
		case b.Type != blockType || b.Name != name || b.Rank > first.Rank || b.IsBuiltin() || b.Range == first.Range:
		case isNameless(blockType):
			l.errorf(b.Range, "Second "+b.Type, "A policy can have only one %s block; the first is at %s. Remove one.%s", b.Type, Place(first.Range),
				ifPools(b.Range, first.Range))
		default:
			l.errorf(b.Range, "Same name twice", "Variable %q is already defined at %s. Rename one of the two.", b.Name, Place(first.Range))
		}
	}
	return first
}

// ifPools completes a message about two blocks: blocks in two files may be for two pools.
func ifPools(a, b hcl.Range) string {
	return map[bool]string{true: " All files are one policy: for different pools, name each pool's file alone."}[a.Filename != b.Filename]
}

// At returns the position of an attribute's value, or of the block if it is not set.
func (b Stanza) At(name string) hcl.Range {
	if e := b.Get(name); e != nil {
		return e.Range()
	}
	return b.Range
}

func fileSchema() *hcl.BodySchema {
	s := &hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: "required_version"}}}
	for _, t := range strings.Fields("use module sysctl sysctls sysfs link check probe lint gate publish audit variable override") {
		b := hcl.BlockHeaderSchema{Type: t}
		if !isNameless(t) {
			b.LabelNames = []string{"name"}
		}
		s.Blocks = append(s.Blocks, b)
	}
	return s
}

// isNameless reports whether blocks of a type have no name.
func isNameless(blockType string) bool {
	return slices.Contains([]string{"sysctls", "lint", "gate", "publish", "audit", "match"}, blockType)
}

const ofAll = "severity reason ref symptom tradeoff when "

// arguments lists the arguments of each type of block.
var arguments = map[string]string{
	"variable": "type default description one_of min max",
	"module":   ofAll + "drift options absent",
	"check":    ofAll + "drift command timeout stages",
	"sysctl":   ofAll + "drift value min max one_of",
	"sysfs":    ofAll + "drift value min max one_of",
	"sysctls":  ofAll + "drift values",
	"link":     ofAll + "drift " + strings.Join(linkArguments(), " "),
	"probe":    ofAll + "timeout address protocol",
	"match":    "name kind driver default_route",
	"gate":     "unit unit_absent budget interval on_timeout repair enforce on_held",
	"lint":     "allow_names allow",
	"publish":  "condition kubeconfig node by",
	"audit":    "kubeconfig node zone every settle severity",
}

// blockSchema returns the attributes and blocks that a block of that type may contain.
func blockSchema(blockType string) *hcl.BodySchema {
	s := &hcl.BodySchema{}
	for _, name := range strings.Fields(arguments[blockType]) {
		s.Attributes = append(s.Attributes, hcl.AttributeSchema{Name: name})
	}
	if blockType == "link" {
		s.Blocks = []hcl.BlockHeaderSchema{{Type: "match"}}
	}
	return s
}

// openBlock reads the content of a block. The content of an override is read later, because its
// schema depends on the requirement that it overrides. The text is the file's.
func (r *reader) openBlock(b *hcl.Block, text []byte) Stanza {
	content := &hcl.BodyContent{}
	if b.Type != "override" {
		var diags hcl.Diagnostics
		schema := blockSchema(b.Type)
		content, diags = b.Body.Content(schema)
		r.diags = append(r.diags, mendUnknown(diags, b.Type, strings.Join(b.Labels, "."), schema, text)...)
	}
	opened := Stanza{Type: b.Type, Range: b.DefRange, Body: b.Body, Attrs: content.Attributes, Blocks: content.Blocks}
	if len(b.Labels) > 0 {
		opened.Name, opened.Range = b.Labels[0], b.LabelRanges[0]
	}
	if now, renamed := r.Renamed[opened.Name]; renamed && (b.Type == "check" || b.Type == "override") {
		opened.Name, opened.Former = now, opened.Name
		r.diags = append(r.diags, &hcl.Diagnostic{
			Severity: hcl.DiagWarning, Summary: "Renamed check", Subject: opened.Range.Ptr(),
			Detail: fmt.Sprintf("%s is now %s. Write: %s %[2]q.", opened.Former, now, b.Type),
		})
	}
	return opened
}

// isDropped reports whether a block names a check that has gone, and warns of it.
func (r *reader) isDropped(b Stanza) bool {
	name := b.Name
	if b.Type == "probe" {
		name = "probe." + name
	}
	why, dropped := r.Dropped[name]
	if dropped = dropped && slices.Contains([]string{"check", "override", "probe"}, b.Type); dropped {
		r.diags = append(r.diags, &hcl.Diagnostic{
			Severity: hcl.DiagWarning, Summary: "Dropped check", Subject: b.Range.Ptr(),
			Detail: fmt.Sprintf("nodegate does not check %s any more: %s. Remove the block.", name, why),
		})
	}
	return dropped
}

// each returns one sysctl block for each entry of a sysctls block. An entry is a value, or a map with min and max, or one_of.
func (r *reader) each(b Stanza, text []byte) (all []Stanza) {
	values, is := b.Get("values").(*hclsyntax.ObjectConsExpr)
	if !is || len(values.Items) == 0 {
		r.errorf(b.At("values"), "Missing values", "Write the parameters with their values: values = { \"net.core.somaxconn\" = 4096, "+
			"\"vm.swappiness\" = 10 }.")
		return nil
	}
	for _, item := range values.Items {
		key, diags := item.KeyExpr.Value(nil)
		if diags.HasErrors() || key.IsNull() || key.Type() != cty.String {
			r.errorf(item.KeyExpr.Range(), "Not a kernel parameter", "Write the parameter's name in quotes: %q = %s.",
				item.KeyExpr.Range().SliceBytes(text), item.ValueExpr.Range().SliceBytes(text))
			continue
		}
		one := Stanza{Type: "sysctl", Name: key.AsString(), Range: item.KeyExpr.Range(), Rank: b.Rank, Body: hcl.EmptyBody(),
			Attrs: maps.Clone(b.Attrs)}
		delete(one.Attrs, "values")
		set := func(name string, e hclsyntax.Expression) {
			one.Attrs[name] = &hcl.Attribute{Name: name, Expr: e, Range: e.Range(), NameRange: one.Range}
		}
		before := len(r.diags)
		bounds, are := item.ValueExpr.(*hclsyntax.ObjectConsExpr)
		if !are {
			set("value", item.ValueExpr)
		} else {
			for _, bound := range bounds.Items {
				name, _ := bound.KeyExpr.Value(nil)
				if !slices.Contains([]string{"min", "max", "one_of"}, name.AsString()) {
					r.errorf(bound.KeyExpr.Range(), "Unsupported argument", "A parameter's map has min, max or one_of: { min = 4096 }.")
				}
				set(name.AsString(), bound.ValueExpr)
			}
		}
		if len(r.diags) == before {
			all = append(all, one)
		}
	}
	return all
}

// Expressions returns the expressions of a block and of the blocks in it.
func (b Stanza) Expressions() []hcl.Expression {
	var all []hcl.Expression
	add := func(attrs hcl.Attributes) {
		for _, name := range slices.Sorted(maps.Keys(attrs)) {
			all = append(all, attrs[name].Expr)
		}
	}
	add(b.Attrs)
	for _, inner := range b.Inner() {
		add(inner.Attrs)
	}
	return all
}

// Inner returns the blocks in a block. Evaluation reports the mistakes in them.
func (b Stanza) Inner() (all []Stanza) {
	for _, inner := range b.Blocks {
		content, _ := inner.Body.Content(blockSchema(inner.Type))
		all = append(all, Stanza{Type: inner.Type, Range: inner.DefRange, Body: inner.Body, Attrs: content.Attributes})
	}
	return all
}
