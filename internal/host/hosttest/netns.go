package hosttest

import (
	"bytes"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"nodegate/internal/assert"
	"nodegate/internal/require"
)

// inNetns is set in the process that runs a test inside its own namespace.
const inNetns = "NODEGATE_TEST_IN_NETNS"

// OwnNetns runs the calling test a second time, in a child process with a new network namespace, and returns true there: all goroutines of
// the test are then in that namespace. The namespace ends with the process. If OwnNetns returns false, the test is over.
func OwnNetns(t *testing.T) bool {
	t.Helper()
	NeedRoot(t)
	if os.Getenv(inNetns) == t.Name() {
		return true
	}
	cmd := exec.Command("/proc/self/exe", "-test.run", "^"+t.Name()+"$", "-test.v", "-test.timeout", "50m")
	cmd.Env = append(os.Environ(), inNetns+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	t.Logf("in a new network namespace:\n%s", out)
	assert.NoError(t, err, "in a new network namespace")
	require.True(t, !bytes.Contains(out, []byte("--- SKIP: "+t.Name())), "skipped in its namespace: Need must come before OwnNetns")
	return false
}
