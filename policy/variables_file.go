package policy

import (
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// ReadVariables adds to o the NAME = VALUE lines, HCL attributes, of files. A value
// is kept as it is written, for the variable's own type to read.
func (o *Options) ReadVariables(files []File) hcl.Diagnostics {
	for _, f := range files {
		if diags := checkDepth(f); diags.HasErrors() {
			return diags
		}
		parsed, diags := hclsyntax.ParseConfig(f.Text, f.Name, hcl.InitialPos)
		attrs := hcl.Attributes{}
		if !diags.HasErrors() {
			attrs, diags = parsed.Body.JustAttributes()
		}
		if diags.HasErrors() {
			return diags
		}
		for name, a := range attrs {
			text := strings.TrimSpace(string(a.Expr.Range().SliceBytes(f.Text)))
			o.VarsAt[name] = a.Expr.Range()
			o.Vars[name] = strings.TrimSuffix(strings.TrimPrefix(text, `"`), `"`)
		}
	}
	return nil
}
