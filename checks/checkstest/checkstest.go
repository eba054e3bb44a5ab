// Package checkstest has the shared helpers of the checks' tests: recorded nodes, scratch network
// namespaces, and reports as text that a test compares with a literal.
package checkstest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nodegate/checks"
	"nodegate/checks/catalog"
	"nodegate/internal/verdict"
	"nodegate/policy"
)

// Load loads a policy.
func Load(t testing.TB, text string) *policy.Policy {
	t.Helper()
	p, diags := policy.Load([]policy.File{{Name: "test.hcl", Text: []byte(text)}}, policy.Options{Checks: catalog.Known().Checks})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	return p
}

// Print returns a report as lines that a test can compare with a literal.
func Print(r checks.Outcome) string {
	var b strings.Builder
	for _, res := range r.Results {
		fmt.Fprintf(&b, "%s %s", res.Verdict, res.Name)
		switch {
		case res.Fixed:
			fmt.Fprintf(&b, ": %s -> %s", res.Was, res.State.Got)
		case res.Verdict == verdict.Skipped:
			fmt.Fprintf(&b, ": %s", res.State.Skip)
		case res.Verdict != verdict.Pass && res.Verdict != verdict.Unknown:
			fmt.Fprintf(&b, ": want %s, got %s", res.State.Want, res.State.Got)
		}
		if res.IsSymptom() {
			fmt.Fprintf(&b, " (because %s)", res.State.Cause)
		}
		if res.Err != nil {
			fmt.Fprintf(&b, " [%v]", res.Err)
		}
		b.WriteByte('\n')
	}
	return b.String() + r.Verdict().String() + "\n"
}

// Equal compares two texts, ignoring white space around them.
func Equal(t *testing.T, what, want, got string) {
	t.Helper()
	if d := cmp.Diff(strings.TrimSpace(want), strings.TrimSpace(got)); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}
