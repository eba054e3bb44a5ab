package export

import (
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/require"
	"nodegate/policy"
)

// FuzzKops: every policy text passes through the YAML unchanged.
func FuzzKops(f *testing.F) {
	f.Add(testPolicy)
	f.Add("use \"kubernetes\" {}\r\n#\t\u0085 x")
	names := checkNames(f)
	f.Fuzz(func(t *testing.T, text string) {
		texts := []policy.File{{Name: "my.hcl", Text: []byte(text)}}
		p, diags := policy.Load(texts, policy.Options{Checks: names})
		if diags.HasErrors() {
			return
		}
		r, err := writeKops(Input{Policy: p, Texts: texts})
		require.NoError(t, err)
		var k kopsOut
		decodeYAML(t, r.Text, &k)
		assert.Equal(t, k.Spec.FileAssets[0].Content, text, "%q became", text)
	})
}
