// Package vm boots real Debian 12 nodes in QEMU, so that tests can check the effects of nodegate on the real kernel, module loader and
// systemd.
//
// It works in three steps, each usable alone:
//
//	Cache.Base       builds (once) a Debian tree with mmdebstrap and keeps it
//	Base.Clone       copies the tree for one scenario; the caller prepares it from the host; MakeDisk turns it into a disk
//	Machine.Boot     starts QEMU on the disk and returns a Guest: Run, Reboot, Kill, Console
//
// These contracts hold for the whole package:
//
//   - Every wait has a deadline: the context's, or else the package's own.
//   - A killed build never leaves a partial image that a later run would use.
//   - The guest is driven by an agent on a virtio port (rootfs/opt/vm/agent), which depends neither on nodegate nor on kubelet. The
//     serial console is only read.
//   - Machines have no network cards except those in Machine.Taps. Networks of the scenarios live in network namespaces of the guest.
//
// Emulation is always TCG: slow, but it works everywhere. An existing /dev/kvm proves nothing; on some machines it hangs a stock kernel.
//
// The package needs root, because a tree contains device nodes and files of several owners.
package vm

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"nodegate/internal/e2e/qemu"
)

// tools are the host programs that the package runs, each with its Debian package.
var tools = [...]struct{ program, debian string }{
	{"mmdebstrap", "mmdebstrap"},
	{"qemu-system-x86_64", "qemu-system-x86"},
	{"qemu-system-aarch64", "qemu-system-arm"},
	{"qemu-aarch64-static", "qemu-user-static"},
	{"arch-test", "arch-test"},
	{"mkfs.ext4", "e2fsprogs"},
	{"cp", "coreutils"},
}

// Missing returns the reasons why this host cannot run virtual machines, one per line, or nil.
func Missing() []string {
	var reasons []string
	if os.Geteuid() != 0 {
		reasons = append(reasons, "not root: the node tree holds files of several owners")
	}
	for _, t := range tools {
		if _, err := exec.LookPath(t.program); err != nil {
			reasons = append(reasons, fmt.Sprintf("no %s: apt-get install %s", t.program, t.debian))
		}
	}
	return reasons
}

// runProgram executes a host program that must succeed within the limit. It has its own process and mount namespaces, so all its
// processes and mounts end with it, even if it or this process is killed. mmdebstrap mounts /proc and /sys in its tree; if those
// mounts were left behind, the tree could not be removed.
func runProgram(ctx context.Context, limit time.Duration, env []string, name string, args ...string) (string, error) {
	return runProgramAs(ctx, ownNamespaces(), limit, env, name, args...)
}

func ownNamespaces() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS}
}

func runProgramAs(ctx context.Context, as *syscall.SysProcAttr, limit time.Duration, env []string, name string,
	args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = as
	cmd.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := qemu.Run(cmd); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w (limit %s)", ctx.Err(), limit)
		}
		return out.String(), fmt.Errorf("running %s: %w\n%s", name, err, qemu.Tail(out.String(), 30))
	}
	return out.String(), nil
}
