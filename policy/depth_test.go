package policy_test

import (
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/policy"
)

// TestTooComplex: a policy that would overflow the stack or use up the memory is refused before it
// is parsed. Without checkDepth this test does not end. SECURITY.md: parser.
func TestTooComplex(t *testing.T) {
	value := func(v string) string { return "sysctl \"kernel.panic\" {\n  value = " + v + "\n}\n" }
	many, long := strings.Repeat("1,", 3000)+"1", strings.Repeat("x", 60_000)
	variable := "variable \"v\" { default = \"" + long + "\" }\n"
	list := "[" + strings.Repeat("1,", 300) + "1]"
	for what, c := range map[string]struct{ name, text, want string }{
		"brackets":             {"a.hcl", value(strings.Repeat("[", 20_000)), "nested at most 100 deep"},
		"blocks":               {"a.hcl", strings.Repeat("x {\n", 20_000), "nested at most 100 deep"},
		"templates":            {"a.hcl", value(strings.Repeat(`"${`, 20_000)), "nested at most 100 deep"},
		"operators":            {"a.hcl", value(strings.Repeat("!", 20_000) + "true"), "at most 1000 operators"},
		"sums over lines":      {"a.hcl", value("(" + strings.Repeat("1 +\n", 20_000) + "1)"), "at most 1000 operators"},
		"choices":              {"a.hcl", value(strings.Repeat("true ? 1 : ", 10_000) + "1"), "at most 1000 operators"},
		"repeated texts":       {"a.hcl", value(`"` + strings.Repeat("${node.name}", 10_000) + `"`), "at most 1000 operators"},
		"for in for":           {"a.hcl", value(strings.Repeat("[for a in "+list+": ", 4) + "a]]]]"), "cannot contain another"},
		"for in a template":    {"a.hcl", value(`"%{ for a in [1] }%{ for b in [1] }x%{ endfor }%{ endfor }"`), "cannot contain another"},
		"for over a long list": {"a.hcl", value("[for a in [" + many + "] : \"${a}" + long[:3000] + "\"]"), "more than 4 MiB of values"},
		"for in a variable": {"a.hcl", "variable \"v\" { default = [for a in [" + many + "] : \"${a}" + long[:3000] + "\"] }\n",
			"more than 4 MiB of values"},
		"formats in a for":           {"a.hcl", value("[for a in [" + many + "] : format(\"%d\", a)]"), "more than 4 MiB of values"},
		"a long variable used often": {"a.hcl", variable + value(`"`+strings.Repeat("${var.v}", 900)+`"`), "more than 4 MiB of values"},
		"many uses that add up":      {"a.hcl", variable + strings.Repeat(value("can(var.v) ? 1 : 2"), 900), "more than 4 MiB of values"},
		"an argument used often": {"a.hcl", value(`format("` + strings.Repeat("%[1]s", 100) + `", "` + long[:1000] + `")`),
			"more than 4096 bytes"},
		"a wide number":  {"a.hcl", value(`format("%999999d", 1)`), "more than 4096 bytes"},
		"a large number": {"a.hcl", value(`lower(1e3000000)`), "at most 40 digits"},
		"a small number": {"a.hcl", value(`lower(1E-3000000)`), "at most 40 digits"},
		"a long number":  {"a.hcl", value(strings.Repeat("9", 50_000)), "at most 40 digits"},
		"a long pattern": {"a.hcl", value(`regex("` + strings.Repeat("(a{1,1000})", 50) + `", "a")`), "at most 500 bytes"},
	} {
		_, diags := policy.Load([]policy.File{{Name: c.name, Text: []byte(c.text)}}, policy.Options{})
		assert.True(t, strings.Contains(diags.Error(), c.want), "%s: %.300v", what, diags)
		assert.True(t, !strings.Contains(c.want, "MiB") || len(diags) == 1, "%s: %d mistakes, want only the first", what, len(diags))
	}
	for what, text := range map[string]string{
		"two for, one after the other": value("max([for a in [1, 2] : a]..., [for a in [3] : a]...)"),
		"two templates":                value(`"%{ for a in [1] }1%{ endfor }%{ for b in [2] }2%{ endfor }"`),
		"many lines with operators":    strings.Repeat("# a\nvariable \"a\" { default = -1 }\n", 1) + value("var.a + 1"),
		"numbers":                      value("max(18446744073709551615, 1e9, 0.25e+2, 007)"),
		"prose":                        "module \"overlay\" {\n  reason = \"for one in all [[[[ for all in one\"\n}\n",
	} {
		_, diags := policy.Load([]policy.File{{Name: "a.hcl", Text: []byte(text)}}, policy.Options{})
		assert.True(t, !strings.Contains(diags.Error(), "Too complex"), "%s is too complex: %v", what, diags)
	}
}
