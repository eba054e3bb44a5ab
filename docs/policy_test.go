package docs_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"nodegate/checks/catalog"
	"nodegate/internal/assert"
	"nodegate/internal/host/hosttest"
	"nodegate/internal/require"
	"nodegate/policy"
)

// TestPolicySchema: a schema validator accepts with docs/policy.schema.json what the language accepts, and refuses a mistake.
func TestPolicySchema(t *testing.T) {
	hosttest.NeedProgram(t, "jsonschema")
	documents := map[string]bool{
		`{"//": "ours", "use": {"kubernetes": {}}, "module": {"nf_conntrack": {"options": {"hashsize": 65536}}, "sctp": {"absent": true}},
		  "sysctl": {"kernel.panic": {"min": "${max(5, node.cpus)}", "severity": "warn"}, "vm.swappiness": [{"value": 10}]},
		  "sysfs": {"kernel/mm/transparent_hugepage/enabled": {"one_of": ["never", "madvise"]}},
		  "link": {"a": {"match": {"driver": "ena"}, "ring": {"rx": "max"}, "coalesce": {"adaptive-rx": true}, "mtu": 9001}},
		  "check": {"swap": {}, "exec.gpu": {"command": ["/x", "-a"], "stages": ["run"]}},
		  "gate": {"budget": "30s", "on_held": ["/x"]}, "publish": {}, "audit": {"every": "5m"}, "lint": {"allow_names": ["x"]},
		  "variable": {"n": {"type": "number", "default": 4}}, "override": {"sysctl.kernel.panic": {"min": 5}},
		  "probe": {"bridge": {"timeout": "1s"}}}`: true,
		`{"modul": {"overlay": {}}}`:                                    false,
		`{"module": {"overlay": {"severity": "fatal"}}}`:                false,
		`{"sysctl": {"kernel.panic": {"valu": 1}}}`:                     false,
		`{"sysctl": {"kernel.panic": {"min": "many"}}}`:                 false,
		`{"link": {"a": {"mtu": 1500}}}`:                                false,
		`{"link": {"a": {"match": {"name": "a"}, "ring": {"rxx": 1}}}}`: false,
		`{"check": {"exec": {"command": "/x"}}}`:                        false,
	}
	dir := t.TempDir()
	arguments := []string{"--output", "pretty"}
	for i, text := range slices.Sorted(maps.Keys(documents)) {
		name := filepath.Join(dir, fmt.Sprintf("%d.hcl.json", i))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		arguments = append(arguments, "-i", name)
	}
	out, err := exec.Command("jsonschema", append(arguments, "policy.schema.json")...).CombinedOutput()
	assert.True(t, err != nil, "all documents are valid:\n%s", out)
	for i, text := range slices.Sorted(maps.Keys(documents)) {
		name := filepath.Join(dir, fmt.Sprintf("%d.hcl.json", i))
		valid := strings.Contains(string(out), "[SUCCESS]===("+name+")")
		assert.True(t, valid == documents[text], "%s\nvalid: %t\n%s", text, valid, out)
		_, diags := policy.Load([]policy.File{{Name: name, Text: []byte(text)}}, policy.Options{Checks: catalog.Names()})
		assert.True(t, diags.HasErrors() != documents[text], "%s\nthe language differs from the schema: %v", text, diags)
	}
}
