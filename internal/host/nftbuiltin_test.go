package host

import (
	"os"
	"path/filepath"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// TestHasNFTables checks that nf_tables is found whether it is a loaded module or a part of the kernel, and not if it is
// a module that is not loaded.
func TestHasNFTables(t *testing.T) {
	const release, modules = "proc/sys/kernel/osrelease", "proc/modules"
	for _, c := range []struct {
		what  string
		files map[string]string
		want  bool
	}{
		{"loaded", map[string]string{"sys/module/nf_tables/refcnt": "3\n", modules: "nf_tables 1 0 - Live 0x0\n"}, true},
		{"built in", map[string]string{modules: "", release: "6.1.0\n", "lib/modules/6.1.0/modules.builtin": "kernel/net/netfilter/nf_tables.ko\n"}, true},
		{"built in, merged /usr", map[string]string{modules: "", release: "6.1.0\n",
			"usr/lib/modules/6.1.0/modules.builtin": "kernel/net/netfilter/nf_tables.ko\n"}, true},
		{"not loaded", map[string]string{modules: "", release: "6.1.0\n", "lib/modules/6.1.0/modules.builtin": "kernel/net/netfilter/nft_fib.ko\n",
			"proc/kallsyms": "0000000000000000 t nf_tables_newtable\n"}, false},
		{"built in, seen from a container", map[string]string{modules: "", release: "6.1.0\n",
			"proc/kallsyms": "0000000000000000 T _text\n0000000000000000 t nf_tables_newtable\n"}, true},
		{"not there, seen from a container", map[string]string{modules: "", release: "6.1.0\n",
			"proc/kallsyms": "0000000000000000 T _text\n0000000000000000 t nf_tables_newtable\t[other]\n"}, false},
		{"a kernel without modules", map[string]string{release: "6.1.0\n"}, true},
	} {
		root := t.TempDir()
		for name, text := range c.files {
			path := filepath.Join(root, name)
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		}
		assert.Equal(t, hasNFTables(root), c.want, "%s", c.what)
	}
}
