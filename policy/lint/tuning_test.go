package lint_test

import (
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/policy"
	"nodegate/policy/lint"
)

func TestTuning(t *testing.T) {
	p := load(t, `
		link "card" {
		  match { name = "eth0" }
		  ring     = { tx = 512, rx = "max" }
		  channels = { combined = 2 }
		  coalesce = { rx-usecs = 50, adaptive-rx = false }
		}`)
	want := "channels.combined=2 ring.rx=max ring.tx=512 coalesce.adaptive-rx=off coalesce.rx-usecs=50"
	assert.Equal(t, p.Links[0].Want(), want)
	for text, want := range map[string]string{
		`ring = { rx = "most" }`:          `ring.rx must be a whole number of at most 32 bits, or "max"`,
		`ring = { rx = -1 }`:              "ring.rx must be a whole number",
		`ring = { rx = 4294967296 }`:      "ring.rx must be a whole number",
		`ring = { rx = 1.5 }`:             "ring.rx must be a whole number",
		`ring = { rxx = 512 }`:            `"rxx" is not a name that ethtool uses for ring`,
		`ring = 512`:                      "ring must be a map",
		`channels = { combined = null }`:  "channels.combined must be a whole number",
		`coalesce = { rx-usecs = "max" }`: "coalesce.rx-usecs must be a whole number of at most 32 bits.",
		`coalesce = { adaptive-rx = 1 }`:  "coalesce.adaptive-rx must be true or false",
		"ring = { rx = 512 }\n}\nlink \"b\" {\n  match { name = \"e*\" }\n  ring = { rx = 256 }": "This link (name=e*) sets ring.rx",
		"": "Give link \"a\" one of these: offload, mtu, channels, ring, coalesce, sysctl, sysfs.",
	} {
		text = "link \"a\" {\n  match { name = \"eth0\" }\n  " + text + "\n}"
		diags := lint.Lint([]policy.File{{Name: "test.hcl", Text: []byte(text)}}, known())
		assert.True(t, strings.Contains(diags.Error(), want), "%s\n%v\nwant %s", text, diags, want)
	}
}
