package policy_test

import (
	"strings"
	"testing"

	"nodegate/policy"
)

// TestLookAlikes: a character that cannot be seen, or that looks like another one, is named by its code point.
func TestLookAlikes(t *testing.T) {
	lint := func(name, text string) string {
		var all []string
		for _, d := range policy.Lint([]policy.File{{Name: name, Text: []byte(text)}}, known()) {
			all = append(all, d.Error())
		}
		return strings.Join(all, "\n")
	}
	for text, want := range map[string]string{
		"sysctl \"vm.sw\u0430ppiness\" { value = 10 }":                         `U+0430, which looks like 'a'`,
		"sysctl \"net.ipv4.tcp_congestion_control\" { value = \"bbr\u200b\" }": "U+200B, an invisible character",
		"module \"overlay\" { when = os.id == \"d\u0435bian\" }":               `U+0435, which looks like 'e'`,
		"module \"overlay\" { s\u0435verity = \"warn\" }":                      `U+0435, which looks like 'e'`,
		"module \"overlay\" {\u00a0}":                                          "U+00A0, which looks like a space",
		"module \u201coverlay\u201d {}":                                        `U+201C, which looks like '"'`,
		"# a comment \u202e\nmodule \"overlay\" {}":                            "U+202E, an invisible character",
		"module \"overlay\" { reason = \"for \u2066Pods\" }":                   "U+2066, an invisible character",
		"module \"overl\u0430y\" {}":                                           "U+0430",
		"sysctl \"kernel.panic\" { value = \"\uff11\uff10\" }":                 `U+FF11, which looks like '1'`,
	} {
		if got := lint("test.hcl", text); !strings.Contains(got, want) {
			t.Errorf("%q: %s", text, got)
		}
	}
	if got := lint("test.hcl", "module \"overl\u0430y\" {}"); strings.Count(got, "U+0430") != 1 {
		t.Errorf("reported twice: %s", got)
	}
	for _, text := range []string{
		"\ufeffmodule \"overlay\" {}",
		"# Für unsere Pods – оверлей\nmodule \"overlay\" { reason = \"оверлей für \u201cPods\u201d\u00a0!\" }",
		"module \"overlay\" {\n  reason = <<-EOT\n    оверлей\n    für Pods\n  EOT\n}",
		"link \"a\" {\n  match { name = \"öfe*\" }\n  mtu = 1500\n  reason = \"é\"\n}",
	} {
		if got := lint("test.hcl", text); got != "" {
			t.Errorf("%q: %s", text, got)
		}
	}
	json := "{\n \"sysctl\": {\"kernel.panic\": {\"value\": 1, \"reason\": \"оверлей\", \"ref\": \"x\u200by\"},\n  \"vm.sw\u0430ppiness\": {\"value\": \"\\u0430\"}}}"
	got := lint("test.hcl.json", json)
	for _, want := range []string{"test.hcl.json:2", "U+200B", "U+0430"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s: %s", want, got)
		}
	}
}
