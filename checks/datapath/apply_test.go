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

// applied makes a namespace what a policy asks for, as `nodegate apply` does:
// it fails where nothing was wrong before, or not all is right after.
func applied(t testing.TB, n *netns.Namespace, text string) {
	t.Helper()
	p, diags := policy.Load([]policy.File{{Name: "scenario.hcl", Text: []byte(text)}}, policy.Options{Checks: catalog.Names()})
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
			return errors.New("apply fixed nothing, or not all: " + r.Verdict().String())
		}
		return nil
	}))
}
