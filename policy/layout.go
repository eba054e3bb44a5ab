package policy

import (
	"bytes"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
)

// Layout returns a policy file in hcl's standard layout: two spaces a level, equal signs of neighbouring attributes aligned, one space
// elsewhere. A file with a syntax error is returned unchanged, with the errors.
func Layout(f File) ([]byte, hcl.Diagnostics) {
	if diags := checkDepth(f); diags.HasErrors() {
		return f.Text, diags
	}
	if _, diags := hclsyntax.ParseConfig(f.Text, f.Name, hcl.InitialPos); diags.HasErrors() {
		return f.Text, diags
	}
	return append(bytes.TrimSpace(hclwrite.Format(f.Text)), '\n'), nil
}
