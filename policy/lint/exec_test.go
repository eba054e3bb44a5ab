package lint_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/policy"
	"nodegate/policy/lint"
)

func TestExec(t *testing.T) {
	p := load(t, `
		check "exec" { command = ["/usr/local/bin/check-gpu", "--all"] }
		check "exec.mounts" {
		  command  = ["/usr/local/bin/mounts"]
		  timeout  = "2s"
		  stages   = ["run"]
		  severity = "warn"
		}
		check "exec.late" { command = [format("/opt/%s", cni.name)] }
		check "swap" {}`)
	var all []string
	for _, e := range p.Execs {
		all = append(all, fmt.Sprintf("%s %q %s %s %s %s %s", e.Name, e.Command, e.Timeout, e.Stages, e.Severity, e.Drift, e.Unknown))
	}
	want := `exec ["/usr/local/bin/check-gpu" "--all"] 10s [boot run] block report 
exec.mounts ["/usr/local/bin/mounts"] 2s [run] warn report 
exec.late [] 10s [boot run] block report cni.name`
	assert.Equal(t, strings.Join(all, "\n"), want)
	assert.NoError(t, p.WriteEffective(io.Discard))
	for text, want := range map[string]string{
		`check "exec" {}`:                                                              "Missing command",
		`check "exec" { command = "/bin/true" }`:                                       "command must be a list of strings",
		`check "exec" { command = ["true"] }`:                                          "Not an absolute path",
		`check "exec" { command = ["/bin/true -a"] }`:                                  "One path",
		"check \"exec\" {\n command = [\"/x\"]\n timeout = \"1m\"\n}":                  "timeout must be between 10ms and 15s",
		"check \"exec\" {\n command = [\"/x\"]\n stages = [\"image\"]\n}":              "stages must be a list",
		"check \"exec\" {\n command = [\"/x\"]\n stages = []\n}":                       "stages must be a list",
		"check \"exec\" {\n command = [\"/x\"]\n stages = \"run\"\n}":                  "stages must be a list",
		"check \"exec\" {\n command = [\"/x\"]\n drift = \"correct\"\n}":               "drift must be",
		`check "exec.GPU" { command = ["/x"] }`:                                        "lower-case letters",
		`check "swap" { command = ["/x"] }`:                                            "Not a program",
		"check \"exec\" { command = [\"/x\"] }\ncheck \"exec\" { command = [\"/y\"] }": "Same name twice",
	} {
		diags := lint.Lint([]policy.File{{Name: "test.hcl", Text: []byte(text)}}, known())
		assert.True(t, strings.Contains(diags.Error(), want), "%s\n%v\nwant %s", text, diags, want)
	}
}
