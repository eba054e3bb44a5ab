package config

import (
	"testing"
)

func FuzzKubeProxy(f *testing.F) {
	f.Add("kind: KubeProxyConfiguration\nconntrack:\n  maxPerCore: 0\n  min: null\n")
	f.Add("  - --conntrack-max-per-core=65536\n  - --conntrack-min \"1\"")
	f.Fuzz(func(t *testing.T, text string) {
		if c, err := ParseKubeProxy(text); err == nil && c.Writes(4, true) > 1048576 {
			t.Errorf("%q: over the cap", text)
		}
	})
}
