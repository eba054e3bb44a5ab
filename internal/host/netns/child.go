package netns

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/program"
)

// RunInUserNamespace runs this program again, with other arguments, as root of a new user and
// network namespace, which an ordinary user may create. It passes input to the child's standard
// input and returns its standard output. The child is killed when ctx ends or the caller dies.
func RunInUserNamespace(ctx context.Context, args []string, input []byte) ([]byte, error) {
	const spaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNET
	out, err := runAgain(ctx, args, input, &syscall.SysProcAttr{
		Cloneflags:  spaces,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	})
	if _, is := errors.AsType[startError](err); is && os.Geteuid() == 0 && errors.Is(err, unix.EPERM) { // root lacks CAP_SETFCAP
		out, err = runAgain(ctx, args, input, &syscall.SysProcAttr{Cloneflags: spaces,
			AmbientCaps: []uintptr{unix.CAP_NET_ADMIN, unix.CAP_NET_RAW, unix.CAP_NET_BIND_SERVICE, unix.CAP_SYS_ADMIN}})
	}
	if failed, is := errors.AsType[startError](err); is {
		return nil, fmt.Errorf("creating a user namespace%s: %w", whyNoUserNamespace(failed.error), failed.error)
	}
	if err != nil {
		return nil, fmt.Errorf("running %s in a user namespace: %w", strings.Join(args, " "), err)
	}
	return out, nil
}

// RunAgain runs this program again, with other arguments, as RunInUserNamespace does, in the caller's namespaces.
func RunAgain(ctx context.Context, args []string, input []byte) ([]byte, error) {
	out, err := runAgain(ctx, args, input, &syscall.SysProcAttr{})
	if err != nil {
		return nil, fmt.Errorf("running %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}

// RunApart runs this program again, with other arguments, as RunAgain does, in mount and process namespaces of its own; with inUser as root
// of new namespaces of all kinds, in which every user and group stands for itself. It needs root. The child has the files from descriptor
// 3 on. It calls MountProc first: the kernel allows a new /proc in a user namespace only beside one that hides nothing.
func RunApart(ctx context.Context, args []string, input []byte, inUser bool, files ...*os.File) ([]byte, error) {
	attr := &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID}
	if inUser {
		all := []syscall.SysProcIDMap{{Size: math.MaxUint32}}
		attr.UidMappings, attr.GidMappings, attr.GidMappingsEnableSetgroups = all, all, true
		attr.Cloneflags |= unix.CLONE_NEWUSER | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP
	}
	out, err := runAgain(ctx, args, input, attr, files...)
	if failed, is := errors.AsType[startError](err); is {
		return nil, fmt.Errorf("creating namespaces%s: %w", whyNoUserNamespace(failed.error), failed.error)
	}
	if err != nil {
		if _, said, is := strings.Cut(err.Error(), ": nodegate: "); is { // the child's own words
			err = errors.New(said)
		}
	}
	return out, err
}

// MountProc mounts a /proc of this process's own namespace, which no other namespace sees.
func MountProc() error {
	if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making the mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	return nil
}

type startError struct{ error }

func (e startError) Unwrap() error { return e.error }

func runAgain(ctx context.Context, args []string, input []byte, attr *syscall.SysProcAttr, files ...*os.File) ([]byte, error) {
	runtime.LockOSThread() // Pdeathsig refers to the thread that started the child
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = program.Environment()
	cmd.WaitDelay = time.Second
	attr.Pdeathsig = syscall.SIGKILL
	cmd.SysProcAttr, cmd.ExtraFiles = attr, files
	var out, complaint bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &out, &complaint
	if err := cmd.Start(); err != nil {
		return nil, startError{err}
	}
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		if said := strings.TrimSpace(complaint.String()); said != "" {
			err = fmt.Errorf("%w: %s", err, said)
		}
		return nil, err
	}
	return out.Bytes(), nil
}

func whyNoUserNamespace(err error) string {
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return " is forbidden here (kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns" +
			" or a container's seccomp profile)"
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EUSERS):
		return " is forbidden here (user.max_user_namespaces or user.max_net_namespaces)"
	case errors.Is(err, unix.EINVAL):
		return " is not in this kernel (CONFIG_USER_NS)"
	}
	return ""
}
