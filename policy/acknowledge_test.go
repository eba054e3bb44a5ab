package policy_test

import (
	"strings"
	"testing"

	"nodegate/policy"
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
		`lint { names = [] }`:                                                                                 `"names" is not expected here`,
	} {
		diags := policy.Lint([]policy.File{{Name: "test.hcl", Text: []byte(text)}}, known())
		if want == "" && len(diags) > 0 || want != "" && !strings.Contains(diags.Error(), want) {
			t.Errorf("%s\n%v\nwant %q", text, diags, want)
		}
	}
	p := load(t, "lint { allow_names = [\"lustre\"] }\nmodule \"lustre\" {}")
	if len(p.Modules) != 1 {
		t.Error("a node does not accept a lint block")
	}
}
