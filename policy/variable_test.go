package policy_test

import (
	"testing"

	"github.com/hashicorp/hcl/v2"

	"nodegate/internal/assert"
	"nodegate/internal/require"
	"nodegate/policy"
)

// TestStringVariables: a string stays a string, whether it is a default or given in a file or on the command line.
func TestStringVariables(t *testing.T) {
	const version, pattern = `variable "v" { default = "1.30" }`, "variable \"v\" {\n type = string\n}"
	for _, c := range []struct{ declared, file, given, want string }{
		{version, "", "", "1.30"},
		{version, "", "1.30", "1.30"},
		{version, `v = "1.30"`, "", "1.30"},
		{version, `v = ""`, "", ""},
		{pattern, `v = "^6\\.1"`, "", `^6\.1`},
		{pattern, "", `^6\.1`, `^6\.1`},
		{`variable "v" { default = 10 }`, "", "20", "20"},
		{`variable "v" { default = 10 }`, `v = 20`, "", "20"},
		{`variable "v" {}`, "", "20", "20"},
	} {
		o := known()
		o.Vars, o.VarsAt = map[string]string{}, map[string]hcl.Range{}
		if c.file != "" {
			if diags := o.ReadVariables([]policy.File{{Name: "a.vars", Text: []byte(c.file)}}); diags.HasErrors() {
				t.Fatal(diags)
			}
		}
		if c.given != "" {
			o.Vars["v"] = c.given
		}
		p, diags := policy.Load([]policy.File{{Name: "p.hcl", Text: []byte(c.declared + "\nsysctl \"a.b\" { value = \"x${var.v}\" }")}}, o)
		assert.True(t, !diags.HasErrors() && p.Sysctls[0].Value == "x"+c.want, "%+v: %q, %v", c, p.Sysctls[0].Value, diags)
	}
}

// TestOwnVariableReplacesBuiltin: a variable block of the author replaces the block of a built-in policy, wherever it stands.
func TestOwnVariableReplacesBuiltin(t *testing.T) {
	const use, own = "use \"flannel-vxlan\" {}\n", "variable \"flannel_checksum_fixed\" { default = \"6.9\" }\n"
	for text, applies := range map[string]bool{use: false, use + own: true, own + use: true} {
		p, diags := policy.Load([]policy.File{{Name: "test.hcl", Text: []byte(text)}}, policy.Options{
			Checks: problemNames(), Fact: func(name string) (any, bool) { return "6.8.0", name == "kernel.version" },
		})
		require.True(t, !diags.HasErrors(), "%s: %v", text, diags)
		assert.Equal(t, p.Links[0].Applies(), applies, "%q: the link applies", text)
	}
	twice := own + own
	if _, diags := policy.Load([]policy.File{{Name: "test.hcl", Text: []byte(twice)}}, known()); !diags.HasErrors() {
		t.Error("two variables of one name are accepted")
	}
}
