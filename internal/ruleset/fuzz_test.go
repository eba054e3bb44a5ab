package ruleset_test

import (
	"strings"
	"testing"

	"nodegate/internal/require"
	"nodegate/internal/ruleset"
)

// consistent fails the test unless the indexes and counts of a set agree.
func consistent(t *testing.T, set *ruleset.Set) {
	t.Helper()
	for _, s := range set.Saves {
		n := int32(0)
		refs := map[int32]int32{}
		for _, table := range s.Tables {
			for _, c := range table.Chains {
				n++
				require.True(t, c.Index == n && table.Chain(c.Name) == c,
					"chain %q has index %d, not %d, or a lookup by name fails", c.Name, c.Index, n)
				for i := range c.Rules {
					r := &c.Rules[i]
					switch {
					case r.Chain != c.Index || int(r.Line) > set.Lines || i > 0 && r.Line <= c.Rules[i-1].Line:
						t.Fatalf("rule %q is in chain %q, line %d", r.Text, c.Name, r.Line)
					case r.Jump != 0 && table.Chain(r.Target).Index != r.Jump:
						t.Fatalf("rule %q jumps to chain %d", r.Text, r.Jump)
					case r.Jump != 0:
						refs[r.Jump]++
					}
				}
			}
		}
		require.True(t, s.Chains == int(n) && s.Family != "", "%d chains, not %d, of family %q", s.Chains, n, s.Family)
		for _, table := range s.Tables {
			for _, c := range table.Chains {
				require.True(t, c.Refs == refs[c.Index], "chain %q: %d references, not %d", c.Name, c.Refs, refs[c.Index])
			}
		}
	}
	for _, table := range set.NFT {
		for i, c := range table.Chains {
			require.True(t, c.Index == i && table.Chain(c.Name) == c,
				"chain %q has index %d, not %d, or a lookup by name fails", c.Name, c.Index, i)
		}
	}
}

func FuzzIptablesSave(f *testing.F) {
	f.Add(string(require.ReadFile(f, testdata+"iptables-save.txt"))[:4000] + "\nCOMMIT\n")
	f.Add("*nat\n:X - [0:0]\n[1:2] -A X ! -s 1.2.3.4/32 -m comment --comment \"a \\\" b\" -j RETURN\nCOMMIT\n")
	f.Add("*nat\n-A X -j Z\n-A Y -j X\n-A X -j Y\n:Z - [0:0]\n-A Z -j Z\nCOMMIT\n")
	f.Fuzz(func(t *testing.T, text string) {
		if set, err := ruleset.Parse("", strings.NewReader(text)); err == nil {
			consistent(t, set)
		}
	})
}

func FuzzNFT(f *testing.F) {
	f.Add(string(require.ReadFile(f, testdata+"nft-1.36-form.json")))
	f.Add(`{"nftables": [{"table": {"family": "ip", "name": "kube-proxy"}},
		{"chain": {"family": "ip", "table": "kube-proxy", "name": "services"}},
		{"rule": {"family": "ip", "table": "kube-proxy", "chain": "services", "expr": [{"drop": null}]}}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		if set, err := ruleset.Parse("", strings.NewReader(text)); err == nil {
			consistent(t, set)
		}
	})
}
