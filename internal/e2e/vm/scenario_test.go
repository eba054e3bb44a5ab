package vm

import (
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
