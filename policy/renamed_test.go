package policy_test

import (
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/policy"
	"nodegate/policy/lint"
)

// TestRenamedCheck: a policy with former names of checks loads, as if it had the current ones, and a warning for each block has the line
// to write. One with dropped checks loads without them, and a warning has the reason.
func TestRenamedCheck(t *testing.T) {
	load := func(text string) (*policy.Policy, string) {
		files, known := []policy.File{{Name: "p.hcl", Text: []byte(text)}}, policy.Options{
			Checks: []string{"kubelet.exit", "kubelet.swap"}, Renamed: map[string]string{"kubelet.flags": "kubelet.exit", "kubelet.state": "kubelet.exit"},
			Dropped: map[string]string{"a.gone": "a reason", "probe.gone": "another"},
		}
		p, diags := policy.Load(files, known)
		_, advice := lint.Advise(files, known)
		assert.Diff(t, advice, diags, "the warnings of lint (+load)")
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		var warnings []string
		for _, d := range diags {
			warnings = append(warnings, d.Subject.String()+": "+d.Detail)
		}
		return p, strings.Join(warnings, "\n")
	}
	p, got := load("check \"kubelet.flags\" {\n  severity = \"warn\"\n}\ncheck \"kubelet.state\" {\n  severity = \"block\"\n}\n" +
		"override \"kubelet.flags\" {\n  severity = \"warn\"\n}\noverride \"kubelet.state\" {\n  severity = \"warn\"\n}\n" +
		"check \"a.gone\" {}\noverride \"a.gone\" {\n  severity = \"block\"\n}\nprobe \"gone\" {\n  timeout = \"9s\"\n}\naudit {\n  zone = \"a\"\n}\n")
	want := `p.hcl:1,7-22: kubelet.flags is now kubelet.exit. Write: check "kubelet.exit".
p.hcl:4,7-22: kubelet.state is now kubelet.exit. Write: check "kubelet.exit".
p.hcl:7,10-25: kubelet.flags is now kubelet.exit. Write: override "kubelet.exit".
p.hcl:10,10-25: kubelet.state is now kubelet.exit. Write: override "kubelet.exit".
p.hcl:13,7-15: nodegate does not check a.gone any more: a reason. Remove the block.
p.hcl:14,10-18: nodegate does not check a.gone any more: a reason. Remove the block.
p.hcl:17,7-13: nodegate does not check probe.gone any more: another. Remove the block.
p.hcl:21,10-13: nodegate does not compare topology hints any more, and needs no zone. Remove the line.`
	assert.Diff(t, got, want, "-want, +got")
	if len(p.Problems) != 1 || p.Problems[0].Name != "kubelet.exit" || p.Problems[0].Severity != policy.Block {
		t.Errorf("the policy has %+v, want one check kubelet.exit that holds", p.Problems)
	}
}
