package policy_test

import (
	"fmt"
	"regexp"
	"slices"
	"testing"

	"nodegate/internal/assert"
	"nodegate/policy"
)

// TestJSONJudgedAsHCL: a policy in JSON has the mistakes and warnings of the same policy in HCL.
func TestJSONJudgedAsHCL(t *testing.T) {
	for hcl, json := range map[string]string{
		`module "overlay" { when = version_at_least(kernel.version, "99") }`:                           `{"module": {"overlay": {"when": "${version_at_least(kernel.version, \"99\")}"}}}`,
		`module "overlay" { when = kernel.version > 5 }`:                                               `{"module": {"overlay": {"when": "${kernel.version > 5}"}}}`,
		`module "overlay" { when = os.id == "Debian" }`:                                                `{"module": {"overlay": {"when": "${os.id == \"Debian\"}"}}}`,
		`sysctl "kernel.panic" { value = node.cpus * 1.5 }`:                                            `{"sysctl": {"kernel.panic": {"value": "${node.cpus * 1.5}"}}}`,
		`sysctl "kernel.panic" { value = 100 / (node.cpus - 1) }`:                                      `{"sysctl": {"kernel.panic": {"value": "${100 / (node.cpus - 1)}"}}}`,
		`sysctl "kernel.panic" { one_of = [1, node.memory > 5 ? 1 : 2] }`:                              `{"sysctl": {"kernel.panic": {"one_of": [1, "${node.memory > 5 ? 1 : 2}"]}}}`,
		`sysctl "vm.min_free_kbytes" { value = node.memory }`:                                          `{"sysctl": {"vm.min_free_kbytes": {"value": "${node.memory}"}}}`,
		"link \"a\" {\n match { name = os.id == 5 ? \"a\" : \"b\" }\n mtu = 1500\n}":                   `{"link": {"a": {"match": {"name": "${os.id == 5 ? \"a\" : \"b\"}"}, "mtu": 1500}}}`,
		`module "overlay" { options = { x = os.id > 4 } }`:                                             `{"module": {"overlay": {"options": {"x": "${os.id > 4}"}}}}`,
		"sysctl \"kernel.panic\" { value = 10 }":                                                       `{"sysctl": {"kernel.panic": {"value": "${10}"}}}`,
		"variable \"n\" {\n type = number\n default = 4\n}\nsysctl \"kernel.panic\" { value = var.n }": `{"variable": {"n": {"type": "number", "default": 4}}, "sysctl": {"kernel.panic": {"value": "${var.n}"}}}`,
	} {
		said := func(name, text string) (all []string) {
			for _, d := range policy.Lint([]policy.File{{Name: name, Text: []byte(text)}}, known()) {
				all = append(all, regexp.MustCompile(`test\.hcl(\.json)?:[0-9:]+`).ReplaceAllString(fmt.Sprint(d.Severity, d.Summary, d.Detail), ""))
			}
			slices.Sort(all)
			return all
		}
		assert.Diff(t, said("test.hcl.json", json), said("test.hcl", hcl), "%s (-HCL +JSON)", hcl)
	}
}
