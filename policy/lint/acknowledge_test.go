package lint_test

import (
	"fmt"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/policy"
	"nodegate/policy/lint"
)

// TestAcknowledgedNames: names of other distributions and of third-party modules pass without a word, and only those.
func TestAcknowledgedNames(t *testing.T) {
	const unknown = "no kernel of Debian 11, 12 or 13 has it"
	for text, want := range map[string]string{
		`module "lustre" {}`: unknown,
		"lint { allow_names = [\"lustre\"] }\nmodule \"lustre\" {}":                                           "",
		"lint { allow_names = [\"lnet\"] }\nmodule \"lustre\" {}":                                             unknown,
		"lint { allow_names = [\"mlx*\"] }\nmodule \"mlx-ext\" {}":                                            "",
		"lint { allow_names = [\"net.mine.*\"] }\nsysctl \"net.mine.x\" { value = 1 }":                        "",
		"lint { allow_names = [\"net/mine/x\"] }\nsysctl \"net.mine.x\" { value = 1 }":                        "",
		"lint { allow_names = [\"gve_ext\"] }\nlink \"a\" {\n match { driver = \"gve-ext\" }\n mtu = 1500\n}": "",
		"lint { allow_names = [\"wormhole\"] }\nlink \"a\" {\n match { kind = \"wormhole\" }\n mtu = 1500\n}": "",
		"module \"lustre\" { when = os.id == \"amzn\" }":                                                      "",
		"module \"lustre\" { when = os.id != \"debian\" && node.cpus > 2 }":                                   "",
		"module \"lustre\" { when = os.id == \"amzn\" && os.version == \"2023\" }":                            "",
		"module \"lustre\" { when = os.version == \"11\" && os.id == \"debian\" }":                            unknown,
		"module \"cramfs\" { absent = true }":                                                                 "",
		"module \"lustre\" { when = os.id == \"debian\" }":                                                    unknown,
		"module \"lustre\" { when = node.cpus > 2 }":                                                          unknown,
		"module \"lustre\" { when = contains([\"rhel\", \"rocky\"], os.id) }\nmodule \"lnet\" {}":             unknown,
		`lint { allow_names = "lustre" }`:                                                                     "allow_names must be a list",
		`lint { allow_names = ["a["] }`:                                                                       "not a valid pattern",
		`lint { names = [] }`:                                                                                 `lint has no "names". It has allow_names, allow`,
	} {
		diags := lint.Lint([]policy.File{{Name: "test.hcl", Text: []byte(text)}}, known())
		if want == "" && len(diags) > 0 || want != "" && !strings.Contains(diags.Error(), want) {
			t.Errorf("%s\n%v\nwant %q", text, diags, want)
		}
	}
	p := load(t, "lint { allow_names = [\"lustre\"] }\nmodule \"lustre\" {}")
	if len(p.Modules) != 1 {
		t.Error("a node does not accept a lint block")
	}
}

// TestAcknowledgedWarning: allow removes one warning of one block, by its id, and no other.
func TestAcknowledgedWarning(t *testing.T) {
	const text = `
		lint { allow = ["node-ports:net.ipv4.ip_local_port_range", "harmful-value:kernel.*", "unused-variable:v", "advice:link.a"] }
		variable "v" { default = 1 }
		sysctls {
		  reason = "r"
		  values = {
		    "net.ipv4.ip_local_port_range" = "1024 65535"
		    "net.ipv4.ip_forward"          = 0
		    "kernel.panic"                 = 4000
		  }
		}
		link "a" {
		  match { name = "*" }
		  mtu      = 9001
		  severity = "warn"
		}`
	p, diags := lint.Advise([]policy.File{{Name: "p.hcl", Text: []byte(text)}}, known())
	assert.True(t, len(diags) == 1 && diags[0].Subject.Start.Line == 8 && len(p.Sysctls) == 3, "%v", diags)
}

// TestSysctls: a block with several parameters is one requirement for each, and each message names its line.
func TestSysctls(t *testing.T) {
	p := load(t, `
		sysctls {
		  severity = "warn"
		  reason   = "Ingress."
		  when     = node.cpus >= 4
		  values = {
		    "net.core.somaxconn" = 4096
		    "vm.swappiness"      = { one_of = [10, 1] }
		    "fs.file-max"        = { min = 65536 * node.cpus, max = 12000500 }
		  }
		}`)
	var got []string
	for _, s := range p.Sysctls {
		got = append(got, fmt.Sprint(s.Key, " ", s.Want(), " ", s.Severity, " ", s.Reason, " ", s.Unknown, " ", s.Range.Start.Line))
	}
	const want = `net.core.somaxconn 4096 warn Ingress. node.cpus 7
vm.swappiness one of 10, 1 warn Ingress. node.cpus 8
fs.file-max at most 12000500 warn Ingress. node.cpus 9`
	assert.Equal(t, strings.Join(got, "\n"), want)
	for text, want := range map[string]string{
		`sysctls { values = {} }`:                                     "p.hcl:1,20-22: Missing values",
		`sysctls { reason = "r" }`:                                    "Missing values",
		"sysctls { values = {\n vm.swappiness = 1\n} }":               "p.hcl:2,2-15: Not a kernel parameter; Write the parameter's name in quotes",
		"sysctls { values = {\n \"vm.swappiness\" = 500\n} }":         "p.hcl:2,20-23: Refused by the kernel",
		"sysctls { values = {\n \"vm.swappiness\" = {mn = 5}\n} }":    "p.hcl:2,21-23: Unsupported argument",
		"sysctls { values = {\n \"vm.a\" = 5\n \"vm.a\" = 6\n} }":     "Contradiction",
		"sysctls { values = [1] }":                                    "Missing values",
		"sysctls {\n values = { \"vm.swappiness\" = 1 }\n min = 5\n}": "Unsupported argument",
	} {
		diags := lint.Lint([]policy.File{{Name: "p.hcl", Text: []byte(text)}}, known())
		if !strings.Contains(fmt.Sprint(diags.Errs()), want) {
			t.Errorf("%s\n%v\nwant %s", text, diags.Errs(), want)
		}
	}
}
