package hosttest

import (
	"os"
	"os/exec"
	"testing"
)

// Need skips a test that this machine cannot run, and says why. Where CI is set
// nothing may be skipped: there the test fails.
func Need(t testing.TB, have bool, what string) {
	t.Helper()
	switch {
	case have:
	case os.Getenv("CI") != "":
		t.Fatalf("needs %s, and CI skips nothing", what)
	default:
		t.Skip("needs " + what)
	}
}

// NeedRoot is for tests that make network namespaces or mounts.
func NeedRoot(t testing.TB) {
	t.Helper()
	Need(t, os.Geteuid() == 0, "root, for namespaces and mounts of its own")
}

// NeedBridgeNetfilter is for tests of the kernel's br_netfilter. They do not load
// it: a test leaves the machine as it was.
func NeedBridgeNetfilter(t testing.TB) {
	t.Helper()
	_, err := os.Stat("/proc/sys/net/bridge/bridge-nf-call-iptables")
	Need(t, err == nil, "br_netfilter in the kernel: modprobe br_netfilter")
}

// NeedProgram is for tests that compare with a program of the system.
func NeedProgram(t testing.TB, name string) {
	t.Helper()
	_, err := exec.LookPath(name)
	Need(t, err == nil, "the program "+name)
}
