package vm

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"nodegate/internal/require"
)

func TestOurScenariosLoad(t *testing.T) {
	scenarios, err := Load("scenarios")
	require.NoError(t, err)
	carriers, err := Load("carriers")
	require.NoError(t, err)
	for _, s := range append(scenarios, carriers...) {
		if len(s.Boots) == 0 {
			t.Errorf("%s has no boots", s.Name)
		}
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
	if s.Name != "x" || s.Description != "It works." || s.Policy == "" || s.Prepare != "" || len(s.Boots) != 3 {
		t.Fatalf("got %+v", s)
	}
	if s.Boots[0].Script != "true" || s.Boots[1].Script != "true" || s.Boots[2].Script != "false" {
		t.Errorf("scripts: %+v", s.Boots)
	}
	if s.Boots[0].Cmdline != "" || s.Boots[2].Cmdline != "a=1 b" {
		t.Errorf("command lines: %+v", s.Boots)
	}
	if len(s.Boots[1].Console) != 1 || !s.Boots[1].Console[0].Never || s.Boots[2].Console[0].Never {
		t.Errorf("console: %+v", s.Boots)
	}
}

func TestLoadNamesEveryMistake(t *testing.T) {
	_, err := Load(writeScenario(t, map[string]string{
		"boot2.sh":   "true",
		"boot2-3.sh": "true",
		"boot9-4.sh": "true",
		"notes.txt":  "",
		"console":    "boot1 (\nbeet1 x\nboot2\n",
	}))
	if err == nil {
		t.Fatal("loaded")
	}
	for _, want := range []string{
		"scenario.md is empty", "boot1.sh is missing", "boot 2 already has", "boot9-4.sh: unknown file", "notes.txt: unknown file",
		"console:1:", "console:2:", "console:3:",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in:\n%v", want, err)
		}
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
		if err := e.Check(console); (err == nil) != test.ok {
			t.Errorf("%+v: %v", test, err)
		}
	}
}

// TestShellSyntax checks the syntax of every script with the shell that runs it, long before a machine boots.
func TestShellSyntax(t *testing.T) {
	var scripts []string
	for _, pattern := range []string{"scenarios/*/*.sh", "carriers/*/*.sh", "carriers_prepare.sh", "rootfs/opt/vm/*.sh", "rootfs/opt/vm/agent",
		"rootfs/opt/vm/kubelet"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v, %v", pattern, found, err)
		}
		scripts = append(scripts, found...)
	}
	for _, script := range scripts {
		if out, err := exec.Command("sh", "-n", script).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", script, err, out)
		}
	}
}

// TestStandInReadsThePolicysSysctls fails if the built-in policy sets a sysctl that the stand-in does not record. The two lists are
// separate, so that an error in one is not repeated in the other.
func TestStandInReadsThePolicysSysctls(t *testing.T) {
	policy, err := os.ReadFile("../../../policy/builtin/kubernetes.hcl")
	require.NoError(t, err)
	looked, err := os.ReadFile("rootfs/opt/vm/sysctls")
	require.NoError(t, err)
	named := regexp.MustCompile(`(?m)^sysctl "([^"]+)" *\{\s*value += +"?([^"\s]+)"?`).FindAllStringSubmatch(string(policy), -1)
	// ... and those of sysctls blocks.
	named = append(named, regexp.MustCompile(`(?m)^    "([^"]+)" += +(\d+)`).FindAllStringSubmatch(string(policy), -1)...)
	if len(named) < 10 {
		t.Fatalf("found %d sysctls in the policy: the pattern of this test no longer fits", len(named))
	}
	for _, m := range named {
		if line := m[1] + " = " + m[2] + "\n"; !strings.Contains(string(looked), line) {
			t.Errorf("rootfs/opt/vm/sysctls lacks %q", line)
		}
	}
}
