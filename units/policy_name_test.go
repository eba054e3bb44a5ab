package units_test

import (
	"path"
	"testing"

	"nodegate/policy"
	"nodegate/units"
)

// TestPolicyNames: a policy file with any name is installed under a name that nodegate reads.
func TestPolicyNames(t *testing.T) {
	for _, name := range []string{
		"node.hcl", "dir/node.hcl", "node", "node.txt", "builtin:kubernetes.hcl", ".node.hcl", ".hcl",
		"-", "/dev/fd/63", "a b.hcl", "node:", "node.hcl.hcl",
	} {
		for _, f := range filesOf(t, units.Copied([]byte("one")), policy.File{Name: name, Text: []byte(policyOne)}) {
			if path.Dir(f.Path) != units.PolicyDir {
				continue
			}
			if base := path.Base(f.Path); !policy.IsPolicyFile(base) {
				t.Errorf("%s is installed as %s", name, base)
			}
		}
	}
}
