package datapath

import (
	"errors"
	"testing"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/internal/host"
	"nodegate/internal/host/netns"
	"nodegate/internal/verdict"
	"nodegate/policy"
)

// applyPolicy applies a policy to a namespace as `nodegate apply` does. The test fails if nothing was wrong before, or
// if a requirement does not pass afterwards.
func applyPolicy(t testing.TB, n *netns.Namespace, text string) {
	t.Helper()
	p, diags := policy.Load([]policy.File{{Name: "scenario.hcl", Text: []byte(text)}}, policy.Options{Checks: catalog.Known().Checks})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	must(t, n.Do(deadline(t), func() error {
		h, err := host.Open("/")
		if err != nil {
			return err
		}
		r := checks.Apply(deadline(t), h, checks.Boot, catalog.For(p, checks.Boot), nil)
		fixed := false
		for _, res := range r.Results {
			fixed = fixed || res.Fixed
		}
		if !fixed || r.Verdict() != verdict.Pass {
			return errors.New("apply did not fix every requirement: " + r.Verdict().String())
		}
		return nil
	}))
}
