package policy_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"

	"nodegate/policy"
)

// TestLayoutAsHclwrite compares Layout with hcl's own formatter for every built-in policy, unchanged
// and with its white space disturbed.
func TestLayoutAsHclwrite(t *testing.T) {
	texts := []string{
		"a=1\n  bcd   =  [1,2 , 3]\n\n\n\nlink   \"x\"{\nmatch {\nname=\"a\"   # why\n}\noffload={tx=false,rx=true}\n}\n",
		"sysctl \"a.b\" {\n value = max( 1,node.cpus*2 )\n when=!version_at_least(kernel.version,\"5.7\")&&node.cpus>1\n" +
			" reason = <<-EOT\n   two\n lines\n EOT\n}\n",
		"// comment\nuse \"kubernetes\" {}\n/* long\n comment */\ngate {}\n",
		"link \"x\" {\n  offload = {\n  tx = false\n      rx-checksum = true\n  }\n}\n",
	}
	files, err := filepath.Glob("builtin/*.hcl")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		same := string(text)
		texts = append(texts, same, strings.ReplaceAll(same, "\n  ", "\n"), strings.ReplaceAll(same, "\n", "  \n   "))
	}
	for i, text := range texts {
		got, diags := policy.Layout(policy.File{Name: "x.hcl", Text: []byte(text)})
		if diags.HasErrors() {
			t.Fatalf("text %d: %v", i, diags)
		}
		want := string(hclwrite.Format([]byte(text)))
		for strings.Contains(want, "\n\n\n") { // we allow one blank line
			want = strings.ReplaceAll(want, "\n\n\n", "\n\n")
		}
		if d := cmp.Diff(strings.TrimSpace(want)+"\n", string(got)); d != "" {
			t.Errorf("text %d (-hclwrite +ours):\n%s", i, d)
		}
	}
}

func FuzzLayout(f *testing.F) {
	f.Add([]byte("a=1\nlink \"x\"{\nb=<<E\n x\nE\n}\n"))
	f.Add([]byte("a = \"${ b }  c\" # d\nc=[\n1,\n]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		out, diags := policy.Layout(policy.File{Name: "x.hcl", Text: text})
		if diags.HasErrors() {
			return
		}
		again, diags := policy.Layout(policy.File{Name: "x.hcl", Text: out})
		if diags.HasErrors() || string(again) != string(out) {
			t.Fatalf("laid out twice: %v\n%q\n%q\n%q", diags, text, out, again)
		}
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
			b.WriteString(strings.TrimRight(string(t.Bytes), "\r\n") + "\x00")
		}
	}
	return b.String()
}
