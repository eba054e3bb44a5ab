package hosttest

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// inNetns is set in the process that runs a test inside its own namespace.
const inNetns = "NODEGATE_TEST_IN_NETNS"

// OwnNetns runs the calling test a second time, in a process with a network
// namespace of its own that ends with it, and returns true there: then all of the
// test's goroutines are in that namespace. Where it returns false the test is over.
func OwnNetns(t *testing.T) bool {
	t.Helper()
	NeedRoot(t)
	if os.Getenv(inNetns) == t.Name() {
		return true
	}
	cmd := exec.Command("/proc/self/exe", "-test.run", "^"+t.Name()+"$", "-test.v", "-test.timeout", "5m")
	cmd.Env = append(os.Environ(), inNetns+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	t.Logf("in a network namespace of its own:\n%s", out)
	if err != nil {
		t.Errorf("in a network namespace of its own: %v", err)
	}
	return false
}
