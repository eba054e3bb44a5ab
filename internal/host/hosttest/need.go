package hosttest

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// Need skips a test that this machine cannot run and logs the reason. If CI is set, the test fails
// instead, because CI must not skip tests. `make test` prints the reasons at its end.
func Need(t testing.TB, have bool, what string) {
	t.Helper()
	dependOnMachine()
	switch {
	case have:
	case os.Getenv("CI") != "":
		t.Fatalf("needs %s; CI must not skip it", what)
	default:
		t.Skip("needs " + what)
	}
}

// dependOnMachine makes go test run a package again, and not take its result from the cache, if the machine's programs or the process's
// rights have changed: the cache's key has the variables that a test read. internal/testrun sets it.
func dependOnMachine() { _ = os.Getenv("NODEGATE_TEST_MACHINE") }

// NeedRoot is for tests that create network namespaces or mounts. Root in a container may be unable to do so.
func NeedRoot(t testing.TB) {
	t.Helper()
	Need(t, os.Geteuid() == 0, "root, to create namespaces and mounts")
	err := Namespaces()
	Need(t, err == nil, fmt.Sprintf("namespaces, which this container denies root: %v", err))
}

// Namespaces reports why a process cannot have its own network and mount namespaces and write a
// sysctl there. It tries in a process, because this one could not leave them again.
func Namespaces() error {
	dependOnMachine()
	cmd := exec.Command("sh", "-c", ": >>/proc/sys/net/ipv4/ip_forward")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w %s", err, out)
	}
	return nil
}

// NeedBridgeNetfilter is for tests of the kernel's br_netfilter. They do not load it, because a test leaves the machine unchanged.
func NeedBridgeNetfilter(t testing.TB) {
	t.Helper()
	_, err := os.Stat("/proc/sys/net/bridge/bridge-nf-call-iptables")
	Need(t, err == nil, "br_netfilter in the kernel: modprobe br_netfilter")
}

// NeedProgram is for tests that run a system program.
func NeedProgram(t testing.TB, name string) {
	t.Helper()
	_, err := exec.LookPath(name)
	Need(t, err == nil, "the program "+name)
}
