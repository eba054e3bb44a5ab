package catalog_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"nodegate/checks/catalog"
	"nodegate/internal/assert"
	"nodegate/internal/host"
	"nodegate/internal/require"
	"nodegate/policy"
)

// TestRecordedNodes: every built-in policy, and every policy on which lint only warns, evaluates on every recorded node,
// with its facts and without any.
func TestRecordedNodes(t *testing.T) {
	var policies []policy.File
	for _, name := range policy.Builtins() {
		f, err := policy.Builtin(name)
		require.NoError(t, err)
		policies = append(policies, f)
	}
	archive, err := txtar.ParseFile("../../cmd/nodegate/testdata/mistakes.ar")
	require.NoError(t, err)
	for _, f := range archive.Files {
		if bytes.HasPrefix(f.Data, []byte("# 0 ")) {
			policies = append(policies, policy.File{Name: f.Name, Text: f.Data})
		}
	}
	recordings, err := filepath.Glob("testdata/nodes/*.json")
	require.True(t, err == nil && len(recordings) != 0, "no recorded nodes: %v", err)
	for _, name := range recordings {
		f, err := os.Open(name)
		require.NoError(t, err)
		s, err := host.ReadSnapshot(f)
		f.Close()
		require.NoError(t, err)
		h := host.Replay(s)
		known := 0
		fact := func(name string) (any, bool) {
			v, ok := h.Fact(t.Context(), name)
			if ok {
				known++
			}
			return v, ok
		}
		for _, p := range policies {
			for _, fact := range []func(string) (any, bool){nil, fact} {
				if _, diags := policy.Load([]policy.File{p}, policy.Options{Checks: catalog.Known().Checks, Fact: fact}); diags.HasErrors() {
					t.Errorf("%s on %s: %v", p.Name, name, diags)
				}
			}
		}
		assert.True(t, known != 0, "%s has none of the facts that the policies use", name)
	}
}
