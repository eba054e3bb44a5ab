//go:build vm

package vm

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// withoutModules returns breakages that remove one module of kube-proxy's rules from the tree's kernel, while the manifest of
// kube-proxy names its mode.
func withoutModules(t *testing.T, tree string) []breakage {
	t.Helper()
	var all []breakage
	for mode, modules := range map[string][]string{
		"iptables": {
			"xt_comment", "xt_conntrack", "xt_statistic", "xt_recent", "xt_mark", "xt_MASQUERADE", "xt_nat", "xt_tcpudp", "xt_addrtype",
			"ipt_REJECT", "ip6t_REJECT",
		},
		"nftables": {
			"nf_tables", "nft_chain_nat", "nft_numgen", "nft_fib", "nft_fib_ipv4", "nft_fib_ipv6", "nft_ct", "nft_masq", "nft_nat",
			"nft_reject_ipv4", "nft_reject_ipv6",
		},
		"ipvs": {
			"ip_vs", "ip_vs_rr", "ip_set", "xt_set", "ip_set_bitmap_port", "ip_set_hash_ip", "ip_set_hash_ipport", "ip_set_hash_ipportip",
			"ip_set_hash_ipportnet",
		},
	} {
		all = append(all, breakage{mode + " mode, whole", "", removeModule(t, tree, mode, "")})
		for _, module := range modules {
			all = append(all, breakage{mode + " mode without " + module, "packetfilter.kernel-can", removeModule(t, tree, mode, module)})
		}
	}
	return all
}

// removeModule writes kube-proxy's manifest, and removes a module from modules.dep.
func removeModule(t *testing.T, tree, mode, module string) func() func() {
	return func() func() {
		manifest := filepath.Join(tree, "etc/kubernetes/manifests/kube-proxy.yaml")
		found, err := filepath.Glob(filepath.Join(tree, "lib/modules/*/modules.dep"))
		require.True(t, err == nil && len(found) == 1, "modules.dep: %v, %v", found, err)
		dep := require.ReadFile(t, found[0])
		less := dep
		if module != "" {
			less = regexp.MustCompile(`(?m)^\S*/`+module+`\.ko.*\n`).ReplaceAll(dep, nil)
			assert.True(t, len(less) != len(dep), "%s is not a module of this kernel", module)
		}
		writeFile(t, manifest, []byte("spec: {containers: [{command: [kube-proxy, --proxy-mode="+mode+"]}]}\n"))
		writeFile(t, found[0], less)
		return func() {
			writeFile(t, found[0], dep)
			require.NoError(t, os.Remove(manifest))
		}
	}
}

func writeFile(t *testing.T, name string, content []byte) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
	require.NoError(t, os.WriteFile(name, content, 0o644))
}
