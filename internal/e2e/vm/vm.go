// Package vm boots real Debian 12 nodes in QEMU, so that the tests can ask the real kernel, the real
// module loader and the real systemd what nodegate did to them.
//
// Three steps, each usable alone:
//
//	Cache.Base       builds (once) a Debian tree with mmdebstrap and keeps it
//	Base.Clone       copies the tree for one scenario; the caller prepares it from the host; MakeDisk turns it into a disk
//	Machine.Boot     starts QEMU on the disk and returns a Guest: Run, Reboot, PowerOff, Kill, Console
//
// Contracts that hold everywhere in the package:
//
//   - Every wait has a deadline: the context's, or the package's own where the context has none.
//   - A killed build leaves no half image that a later run would take for a whole one.
//   - The guest is driven through a virtio port and an agent of its own (rootfs/opt/vm/agent), which depends neither
//     on nodegate nor on kubelet. The serial console is only listened to.
//   - Machines have no network card, but for Machine.Taps. What the scenarios connect lives in network namespaces of the guest.
//
// Emulation is TCG, always: it is slow and it works everywhere. A /dev/kvm that exists proves nothing, there are
// machines on which it hangs a stock kernel.
//
// Root is needed, because the tree holds files of several owners and device nodes.
package vm

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"nodegate/internal/host/qemu"
)

// tools are the host programs the package runs, with the Debian package that brings each.
var tools = [...]struct{ program, debian string }{
	{"mmdebstrap", "mmdebstrap"},
	{"qemu-system-x86_64", "qemu-system-x86"},
	{"qemu-system-aarch64", "qemu-system-arm"},
	{"qemu-aarch64-static", "qemu-user-static"},
	{"arch-test", "arch-test"},
	{"mkfs.ext4", "e2fsprogs"},
	{"cp", "coreutils"},
}

// Missing says what keeps this host from running virtual machines, one reason a line, or nothing when it can.
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

// run executes a host program that must succeed within the limit. What it starts and what it mounts ends with it, also
// when it, or this process, is killed: it has process and mount namespaces of its own. (mmdebstrap mounts /proc and /sys
// in its tree; left behind, they would be in the way of whoever removes the tree.)
func run(ctx context.Context, limit time.Duration, env []string, name string, args ...string) (string, error) {
	return runAs(ctx, apart(), limit, env, name, args...)
}

func apart() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS}
}

func runAs(ctx context.Context, as *syscall.SysProcAttr, limit time.Duration, env []string, name string, args ...string) (string, error) {
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
