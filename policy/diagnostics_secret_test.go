package policy_test

import (
	"strings"
	"testing"

	"nodegate/policy"
)

// TestSecretsInMistakes: a mistake in a command or in the value of a variable is reported with its place, and without its line.
// SECURITY.md: secrets.
func TestSecretsInMistakes(t *testing.T) {
	for _, text := range []string{
		"gate {\n  on_held = [\"/opt/page\", \"--token=hunter2\", 5 5]\n}\n",
		"gate {\n  on_held = [\"/opt/page\",\n    \"--token=hunter2\" \"x\",\n  ]\n}\n",
		"check \"exec.gpu\" { command = [\"gpu\", \"--token=hunter2\"] }\n",
		"variable \"token\" {\n  type    = string\n  default = \"hunter2\" \"x\"\n}\n",
		"variable \"token\" {\n  type    = number\n  default = \"hunter2\"\n}\n",
		"variable \"token\" {\n  default = {\n    a = \"hunter2\" \"x\"\n  }\n}\n",
		"variable \"token\" {\n  type = string\n  default = <<EOT\n{hunter2}\nEOT \"hunter2\"\n}\n",
		"variable \"token\" { defalt = \"hunter2\" }\n",
		"variable \"token\" {\n  default = ${hunter2}\n}\n",
		"variable \"token\" {\n  default : \"hunter2\"\n}\n",
		"variable \"token\" {\n  default == \"hunter2\"\n}\n",
		"variable \"token\" {\n  default = 'hunter2'\n}\n",
		"variable \"token\" {\n  default = \"x\" if hunter2 else \"y\"\n}\n",
		"check \"exec.gpu\" {\n  command = [\"gpu\", \"a\"hunter2\"b\"]\n}\n",
		"gate {\n  on_held: [\"/opt/page\", \"hunter2\"]\n}\n",
		"gate {\n  on_held = \"/opt/page hunter2\"\n}\n",
		"chek \"exec.x\" { comand = [\"/bin/x\", \"hunter2\"] }\n",
		"list = [\"a\" \"hunter2\"]\n", // of a file of values
		"token = \"hunter2\n",
		"check \"exec\" {\n  comand = [\"/bin/x\", \"hunter2\"]\n}\n",
		"gate {\n  on_held = [\n    \"/opt/page\",\n    {hunter2 = \"x\" \"y\"},\n  ]\n}\n",
	} {
		files := []policy.File{{Name: "p.hcl", Text: []byte(text)}}
		_, diags := policy.Load(files, known())
		var b strings.Builder
		policy.WriteDiagnostics(&b, files, diags)
		if !diags.HasErrors() || !strings.HasPrefix(b.String(), "p.hcl:") || strings.Contains(b.String(), "hunter2") {
			t.Errorf("%s gives:\n%s", text, &b)
		}
	}
}
