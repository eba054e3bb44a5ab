package lint_test

import (
	"fmt"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/policy"
	"nodegate/policy/lint"
)

func TestModuleOptions(t *testing.T) {
	p := load(t, `
		module "nf-conntrack" { options = { hashsize = 65536, "tstamp" = true } }
		module "nf_conntrack" { options = { hashsize = 65536, acct = "N" } }
		module "dccp" { absent = true }`)
	var all []string
	for _, m := range p.Modules {
		all = append(all, m.Want(), strings.Join(m.ModprobeLines(), "; "))
	}
	want := []string{
		"loaded with acct=N hashsize=65536 tstamp=Y", "options nf_conntrack acct=N hashsize=65536 tstamp=Y",
		"not loadable", "blacklist dccp; install dccp /bin/false",
	}
	assert.True(t, fmt.Sprint(all) == fmt.Sprint(want), "got %q\nwant %q", all, want)
	for text, want := range map[string]string{
		`module "a" { options = { x = "1 2" } }`:                                     "must not contain spaces",
		`module "a" { options = { x = "1\n install b c" } }`:                         "several lines",
		`module "a" { options = { "x y" = 1 } }`:                                     `"x y" is not one`,
		`module "a" { options = 5 }`:                                                 "options must be a map",
		`module "a" { options = {} }`:                                                "options must be a map",
		"module \"a\" {\n options = { x = 1 }\n absent = true\n}":                    "takes no options",
		"use \"flannel-vxlan\" {}\nmodule \"vxlan\" { absent = true }":               `Remove your block, because nodes need the module: flanneld needs it to create flannel.1.`,
		"module \"a\" {}\nmodule \"a\" { absent = true }":                            "must be not loadable here, but loaded",
		"module \"a\" { options = { x = 1 } }\nmodule \"a\" { options = { x = 2 } }": "Option x of module a is 2 here, but 1",
		"module \"dccp\" {\n absent = true\n when = os.id == \"debian\"\n}":          "must not depend on os.id",
		"module \"dccp\" { absent = \"yes\" }":                                       "absent must be true or false",
	} {
		diags := lint.Lint([]policy.File{{Name: "test.hcl", Text: []byte(text)}}, known())
		assert.True(t, strings.Contains(diags.Error(), want), "%s\n%v\nwant %s", text, diags, want)
	}
}
