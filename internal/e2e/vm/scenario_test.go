package vm

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

func TestOurScenariosLoad(t *testing.T) {
	scenarios, err := Load("scenarios")
	require.NoError(t, err)
	carriers, err := Load("carriers")
	require.NoError(t, err)
	for _, s := range append(scenarios, carriers...) {
		assert.True(t, len(s.Boots) != 0, "%s has no boots", s.Name)
	}
}

// writeScenario writes the directory of a scenario.
func writeScenario(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "scenarios")
	for name, content := range files {
		path := filepath.Join(dir, "x", name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
	return dir
}

func TestLoad(t *testing.T) {
	scenarios, err := Load(writeScenario(t, map[string]string{
		"scenario.md":   "It works.\n",
		"policy.hcl":    "",
		"boot1-2.sh":    "true",
		"boot3.sh":      "false",
		"boot3.cmdline": " a=1\nb ",
		"console":       "# comment\n\nboot1-2 ! bad\nboot3 good.*\n",
	}))
	require.NoError(t, err)
	s := scenarios[0]
	require.True(t, s.Name == "x" && s.Description == "It works." && s.Policy != "" && s.Prepare == "" && len(s.Boots) == 3, "got %+v", s)
	assert.True(t, s.Boots[0].Script == "true" && s.Boots[1].Script == "true" && s.Boots[2].Script == "false", "scripts: %+v", s.Boots)
	assert.True(t, s.Boots[0].Cmdline == "" && s.Boots[2].Cmdline == "a=1 b", "command lines: %+v", s.Boots)
	assert.True(t, len(s.Boots[1].Console) == 1 && s.Boots[1].Console[0].Never && !s.Boots[2].Console[0].Never, "console: %+v", s.Boots)
}

func TestLoadNamesEveryMistake(t *testing.T) {
	_, err := Load(writeScenario(t, map[string]string{
		"boot2.sh":   "true",
		"boot2-3.sh": "true",
		"boot9-4.sh": "true",
		"notes.txt":  "",
		"console":    "boot1 (\nbeet1 x\nboot2\n",
	}))
	require.True(t, err != nil, "loaded")
	for _, want := range []string{
		"scenario.md is empty", "boot1.sh is missing", "boot 2 already has", "boot9-4.sh: unknown file", "notes.txt: unknown file",
		"console:1:", "console:2:", "console:3:",
	} {
		assert.True(t, strings.Contains(err.Error(), want), "%q is missing in:\n%v", want, err)
	}
}

func TestExpectation(t *testing.T) {
	const console = "one\nnodegate: pass\nthree\n"
	for _, test := range []struct {
		pattern string
		never   bool
		ok      bool
	}{
		{"^nodegate: pass$", false, true},
		{"one.*three", false, false},
		{"pass", true, false},
		{"releases", true, true},
	} {
		e := Expectation{Pattern: regexp.MustCompile(test.pattern), Never: test.never}
		err := e.Check(console)
		assert.True(t, (err == nil) == test.ok, "%+v: %v", test, err)
	}
}

// TestShellSyntax checks the syntax of every script with the shell that runs it, long before a machine boots.
func TestShellSyntax(t *testing.T) {
	var scripts []string
	for _, pattern := range []string{"scenarios/*/*.sh", "carriers/*/*.sh", "carriers_prepare.sh", "rootfs/opt/vm/*.sh", "rootfs/opt/vm/agent",
		"rootfs/opt/vm/kubelet"} {
		found, err := filepath.Glob(pattern)
		require.True(t, err == nil && len(found) != 0, "%s: %v, %v", pattern, found, err)
		scripts = append(scripts, found...)
	}
	for _, script := range scripts {
		out, err := exec.Command("sh", "-n", script).CombinedOutput()
		assert.True(t, err == nil, "%s: %v\n%s", script, err, out)
	}
}

// TestStandInReadsThePolicysSysctls fails if the built-in policy sets a sysctl that the stand-in does not record. The two lists are
// separate, so that an error in one is not repeated in the other.
func TestStandInReadsThePolicysSysctls(t *testing.T) {
	policy := require.ReadFile(t, "../../../policy/builtin/kubernetes.hcl")
	looked := require.ReadFile(t, "rootfs/opt/vm/sysctls")
	named := regexp.MustCompile(`(?m)^sysctl "([^"]+)" *\{\s*value += +"?([^"\s]+)"?`).FindAllStringSubmatch(string(policy), -1)
	// ... and those of sysctls blocks.
	named = append(named, regexp.MustCompile(`(?m)^    "([^"]+)" += +(\d+)`).FindAllStringSubmatch(string(policy), -1)...)
	require.True(t, len(named) >= 10, "found %d sysctls in the policy: the pattern of this test no longer fits", len(named))
	for _, m := range named {
		line := m[1] + " = " + m[2] + "\n"
		assert.True(t, strings.Contains(string(looked), line), "rootfs/opt/vm/sysctls lacks %q", line)
	}
}
