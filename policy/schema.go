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

// block is one block of a file. Attributes are kept as expressions, so that every message about a value points at the value.
type block struct {
	Type     string
	Name     string    // its label, or ""
	Former   string    // the label as written, if it is the former name of a check
	Range    hcl.Range // position of the label, or of the block's first line
	Override hcl.Range // position of the override that changed it, if any
	Builtin  bool      // it is in a built-in policy, or in a base: others may override it
	Body     hcl.Body
	Attrs    hcl.Attributes
	Blocks   hcl.Blocks
}

// get returns an attribute's expression, or nil if it is not set.
func (b block) get(name string) hcl.Expression {
	if a, ok := b.Attrs[name]; ok {
		return a.Expr
	}
	return nil
}

// isBuiltin reports whether the block is in a built-in policy.
func (b block) isBuiltin() bool { return strings.HasPrefix(b.Range.Filename, "builtin:") }

// at returns the position of an attribute's value, or of the block if it is not set.
func (b block) at(name string) hcl.Range {
	if e := b.get(name); e != nil {
		return e.Range()
	}
	return b.Range
}

func fileSchema() *hcl.BodySchema {
	return &hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: "required_version"}}, Blocks: []hcl.BlockHeaderSchema{
		{Type: "use", LabelNames: []string{"name"}},
		{Type: "module", LabelNames: []string{"name"}},
		{Type: "sysctl", LabelNames: []string{"key"}},
		{Type: "sysctls"},
		{Type: "sysfs", LabelNames: []string{"path"}},
		{Type: "link", LabelNames: []string{"name"}},
		{Type: "check", LabelNames: []string{"name"}},
		{Type: "probe", LabelNames: []string{"name"}},
		{Type: "lint"},
		{Type: "gate"},
		{Type: "publish"},
		{Type: "audit"},
		{Type: "variable", LabelNames: []string{"name"}},
		{Type: "override", LabelNames: []string{"name"}},
	}}
}

// blockSchema returns the attributes and blocks that a block of that type may contain.
func blockSchema(blockType string) *hcl.BodySchema {
	requirement := []string{"severity", "reason", "ref", "symptom", "tradeoff", "when"}
	switch blockType {
	case "variable":
		return attributes("type", "default", "description", "one_of", "min", "max")
	case "module":
		return attributes(append(requirement, "drift", "options", "absent")...)
	case "check":
		return attributes(append(requirement, "drift", "command", "timeout", "stages")...)
	case "sysctl", "sysfs":
		return attributes(append(requirement, "drift", "value", "min", "max", "one_of")...)
	case "sysctls":
		return attributes(append(requirement, "drift", "values")...)
	case "link":
		s := attributes(append(requirement, "drift", "offload", "mtu", "sysctl", "sysfs", "ring", "channels", "coalesce")...)
		s.Blocks = []hcl.BlockHeaderSchema{{Type: "match"}}
		return s
	case "probe":
		return attributes(append(requirement, "timeout", "address", "protocol")...)
	case "match":
		return attributes("name", "kind", "driver", "default_route")
	case "gate":
		return attributes("unit", "unit_absent", "budget", "interval", "on_timeout", "repair", "enforce", "on_held")
	case "lint":
		return attributes("allow_names", "allow")
	case "publish":
		return attributes("condition", "kubeconfig", "node", "by")
	case "audit":
		return attributes("kubeconfig", "node", "zone", "every", "settle", "severity")
	}
	return attributes()
}

func attributes(names ...string) *hcl.BodySchema {
	s := &hcl.BodySchema{}
	for _, n := range names {
		s.Attributes = append(s.Attributes, hcl.AttributeSchema{Name: n})
	}
	return s
}

// openBlock reads the content of a block. The content of an override is read later, because its
// schema depends on the requirement that it overrides. The text is the file's.
func (r *reader) openBlock(b *hcl.Block, text []byte) block {
	content := &hcl.BodyContent{}
	if b.Type != "override" {
		var diags hcl.Diagnostics
		content, diags = b.Body.Content(blockSchema(b.Type))
		r.diags = append(r.diags, mendUnknown(diags, b.Type, blockSchema(b.Type), text)...)
	}
	opened := block{Type: b.Type, Range: b.DefRange, Body: b.Body, Attrs: content.Attributes, Blocks: content.Blocks}
	if b.Type != "variable" { // its type is a keyword
		opened.Attrs = native(content.Attributes)
	}
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

// each returns one sysctl block for each entry of a sysctls block. An entry is a value, or a map with min and max, or one_of.
func (r *reader) each(b block) (all []block) {
	values, is := b.get("values").(*hclsyntax.ObjectConsExpr)
	if !is || len(values.Items) == 0 {
		r.errorf(b.at("values"), "Missing values", "Write the parameters with their values: values = { \"net.core.somaxconn\" = 4096, "+
			"\"vm.swappiness\" = 10 }.")
		return nil
	}
	for _, item := range values.Items {
		key, diags := item.KeyExpr.Value(nil)
		if diags.HasErrors() || key.IsNull() || key.Type() != cty.String {
			r.errorf(item.KeyExpr.Range(), "Not a kernel parameter", "Write the parameter's name in quotes: \"net.core.somaxconn\" = 4096.")
			continue
		}
		one := block{Type: "sysctl", Name: key.AsString(), Range: item.KeyExpr.Range(), Builtin: b.Builtin, Body: hcl.EmptyBody(),
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
