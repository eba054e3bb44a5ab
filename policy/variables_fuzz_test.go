package policy_test

import (
	"testing"

	"github.com/hashicorp/hcl/v2"

	"nodegate/policy"
)

func FuzzVariables(f *testing.F) {
	f.Add([]byte("a = \"b\"\nc = [1, 2]\n"))
	f.Fuzz(func(_ *testing.T, text []byte) {
		o := policy.Options{Vars: map[string]string{}, VarsAt: map[string]hcl.Range{}}
		o.ReadVariables([]policy.File{{Name: "a.vars", Text: text}})
	})
}
