package hosttest

import (
	"os"
	"os/exec"
	"testing"
)

// Need skips a test that this machine cannot run and logs the reason. If CI is set, the test fails
// instead, because CI must not skip tests.
func Need(t testing.TB, have bool, what string) {
	t.Helper()
	switch {
	case have:
	case os.Getenv("CI") != "":
		t.Fatalf("needs %s; CI must not skip it", what)
	default:
		t.Skip("needs " + what)
	}
}

// NeedRoot is for tests that create network namespaces or mounts.
func NeedRoot(t testing.TB) {
	t.Helper()
	Need(t, os.Geteuid() == 0, "root, to create namespaces and mounts")
}

// NeedBridgeNetfilter is for tests of the kernel's br_netfilter. They do not load it, because a
// test leaves the machine unchanged.
func NeedBridgeNetfilter(t testing.TB) {
	t.Helper()
	_, err := os.Stat("/proc/sys/net/bridge/bridge-nf-call-iptables")
	Need(t, err == nil, "br_netfilter in the kernel: modprobe br_netfilter")
}

// NeedProgram is for tests that compare with a system program.
func NeedProgram(t testing.TB, name string) {
	t.Helper()
	_, err := exec.LookPath(name)
	Need(t, err == nil, "the program "+name)
}
