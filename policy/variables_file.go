package policy

import (
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// ReadVariables adds to vars the NAME = VALUE lines of a file, HCL attributes. A
// value is kept as it is written, for the variable's own type to read.
func ReadVariables(file string, vars map[string]string) ([]File, hcl.Diagnostics, error) {
	files, err := ReadFiles([]string{file})
	if err != nil {
		return nil, nil, err
	}
	for _, f := range files {
		parsed, diags := hclsyntax.ParseConfig(f.Text, f.Name, hcl.InitialPos)
		attrs := hcl.Attributes{}
		if !diags.HasErrors() {
			attrs, diags = parsed.Body.JustAttributes()
		}
		if diags.HasErrors() {
			return files, diags, nil
		}
		for name, a := range attrs {
			text := strings.TrimSpace(string(a.Expr.Range().SliceBytes(f.Text)))
			vars[name] = strings.TrimSuffix(strings.TrimPrefix(text, `"`), `"`)
		}
	}
	return files, nil, nil
}
