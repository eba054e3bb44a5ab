package units_test

import (
	"path"
	"strings"
	"testing"

	"nodegate/policy"
	"nodegate/units"
)

// TestPolicyNames: a policy file with any name is installed under a name that nodegate reads, and keeps its syntax.
func TestPolicyNames(t *testing.T) {
	for _, name := range []string{
		"node.hcl", "dir/node.hcl", "node", "node.hcl.json", "node.json", "builtin:kubernetes.hcl", ".node.hcl", "..node.json", ".hcl",
		".json", "-", "/dev/fd/63", "a b.hcl", "node:", "node.hcl.hcl",
	} {
		text := policyOne
		if strings.HasSuffix(name, ".json") {
			text = `{"module": {"overlay": {}}}`
		}
		for _, f := range filesOf(t, units.Copied([]byte("one")), policy.File{Name: name, Text: []byte(text)}) {
			if path.Dir(f.Path) != units.PolicyDir {
				continue
			}
			if base := path.Base(f.Path); !policy.IsPolicyFile(base) || strings.HasSuffix(base, ".json") != strings.HasSuffix(name, ".json") {
				t.Errorf("%s is installed as %s", name, base)
			}
		}
	}
}
