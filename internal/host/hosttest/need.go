package hosttest

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Need skips a test that this machine cannot run and logs the reason. If CI is set, the test fails
// instead, because CI must not skip tests. `make test` prints the reasons at its end.
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

// NeedRoot is for tests that create network namespaces or mounts. Root in a container may be unable
// to do so.
func NeedRoot(t testing.TB) {
	t.Helper()
	Need(t, os.Geteuid() == 0, "root, to create namespaces and mounts")
	if err := Namespaces(); err != nil {
		Need(t, false, fmt.Sprintf("namespaces and mounts, which this container does not allow root: %v", err))
	}
}

// Namespaces reports why this process cannot create network and mount namespaces and write a sysctl
// there.
func Namespaces() error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		result <- tryNamespaces()
	}()
	return <-result
}

func tryNamespaces() error {
	if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	f, err := os.OpenFile("/proc/sys/net/ipv4/ip_forward", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// NeedBridgeNetfilter is for tests of the kernel's br_netfilter. They do not load it, because a
// test leaves the machine unchanged.
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
