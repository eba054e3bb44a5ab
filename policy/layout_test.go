package policy_test

import (
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"nodegate/internal/require"
	"nodegate/policy"
)

func FuzzLayout(f *testing.F) {
	f.Add([]byte("a=1\nlink \"x\"{\nb=<<E\n x\nE\n}\n"))
	f.Add([]byte("a = \"${ b }  c\" # d\nc=[\n1,\n]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		out, diags := policy.Layout(policy.File{Name: "x.hcl", Text: text})
		if diags.HasErrors() {
			return
		}
		again, diags := policy.Layout(policy.File{Name: "x.hcl", Text: out})
		require.True(t, !diags.HasErrors() && string(again) == string(out), "laid out twice: %v\n%q\n%q\n%q", diags, text, out, again)
		if want, got := meaning(text), meaning(out); want != got {
			t.Fatalf("the tokens changed:\n%q\n%q", want, got)
		}
	})
}

// meaning returns a file's tokens without white space.
func meaning(text []byte) string {
	tokens, _ := hclsyntax.LexConfig(text, "x", hcl.InitialPos)
	var b strings.Builder
	for _, t := range tokens {
		if t.Type != hclsyntax.TokenNewline && t.Type != hclsyntax.TokenEOF {
			b.WriteString(strings.TrimSpace(string(t.Bytes)) + "\x00")
		}
	}
	return b.String()
}
