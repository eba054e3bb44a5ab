package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

func TestOurScenariosLoad(t *testing.T) {
	all, err := Load("scenarios")
	require.NoError(t, err)
	for _, s := range all {
		assert.True(t, len(s.Steps) != 0 && s.Description != "", "%s is empty", s.Name)
	}
}

func TestLoad(t *testing.T) {
	for _, test := range []struct {
		what  string
		files map[string]string
		want  string // text in the error; empty for success
	}{
		{"right", map[string]string{"scenario.md": "x", "1-plane.sh": "a", "2-node2.sh": "b", "3-node1.reboot": "ro\n", "suites": "trixie"}, ""},
		{"with flannel", map[string]string{"scenario.md": "x", "flannel": "", "1-plane.sh": "a", "2-node2.sh": "b", "3-node1.reboot": ""}, ""},
		{"baked", map[string]string{
			"scenario.md": "x", "bake": "", "policy.hcl": "", "1-plane.sh": "a", "2-node2.sh": "b", "3-node1.reboot": "",
		}, ""},
		{"baked without a policy", map[string]string{"scenario.md": "x", "bake": "", "1-plane.sh": "a"}, "policy.hcl is missing"},
		{"a flag with content", map[string]string{"scenario.md": "x", "flannel": "vxlan", "1-plane.sh": "a"}, "flannel"},
		{"no description", map[string]string{"1-plane.sh": "a"}, "scenario.md"},
		{"no steps", map[string]string{"scenario.md": "x"}, "step 1 is missing"},
		{"a gap", map[string]string{"scenario.md": "x", "1-plane.sh": "a", "3-plane.sh": "b"}, "step 2 is missing"},
		{"two", map[string]string{"scenario.md": "x", "1-plane.sh": "a", "1-node1.sh": "b"}, "already is step 1"},
		{"another name", map[string]string{"scenario.md": "x", "1-plane.sh": "a", "1-node3.sh": "b"}, "1-node3.sh"},
		{"an empty script", map[string]string{"scenario.md": "x", "1-plane.sh": ""}, "script is empty"},
		{"a reboot of the control plane", map[string]string{"scenario.md": "x", "1-plane.reboot": ""}, "cannot reboot"},
	} {
		dir := filepath.Join(t.TempDir(), "s")
		require.NoError(t, os.Mkdir(dir, 0o755))
		for name, text := range test.files {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
		}
		s, err := loadScenario(dir)
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%s: %v", test.what, err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: got %v, want an error with %q", test.what, err, test.want)
		}
		_, flannel := test.files["flannel"]
		_, bake := test.files["bake"]
		if test.want == "" && (s.Flannel != flannel || s.Bake != bake || s.Machines != 2 || len(s.Steps) != 3 || s.Steps[1].Where() != "node2" ||
			s.Steps[2] != (Step{1, true, strings.TrimSpace(test.files["3-node1.reboot"])}) || strings.Join(s.Suites, " ") != test.files["suites"]) {
			t.Errorf("%s: %+v", test.what, s)
		}
	}
}
