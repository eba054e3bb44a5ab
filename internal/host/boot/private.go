package boot

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// inPrivate calls run with an empty directory. As root that is a tmpfs in a mount namespace of its own, which ends with this process
// and in which the test mode of systemd finds the file systems that a chroot or a container lacks. Otherwise it is a temporary directory.
func inPrivate(run func(dir string) error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != os.Getpid() {
			done <- privately(run)
			return // without unlocking: the thread ends, and with it the namespace
		}
		defer runtime.UnlockOSThread() // the main thread does not end
		done <- inPrivate(run)
	}()
	return <-done
}

func privately(run func(dir string) error) error {
	err := unshareMounts()
	if errors.Is(err, unix.EPERM) { // an ordinary user, or a container without CAP_SYS_ADMIN
		dir, err := os.MkdirTemp("", "nodegate-units-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		if err := os.Chmod(dir, 0o755); err != nil { // systemd, without privileges, reads it
			return err
		}
		return run(dir)
	}
	if err == nil {
		err = provide()
	}
	if err != nil {
		return fmt.Errorf("making a mount namespace for systemd's test mode: %w", err)
	}
	return run("/run/nodegate")
}

// unshareMounts gives this thread a mount namespace of its own, in which no mount reaches any other. Only a mount can be made private,
// and the root of a chroot need not be one: the namespace's own root is.
func unshareMounts() error {
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(root) }()
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	if self, err := unix.PidfdOpen(os.Getpid(), 0); err == nil {
		err := unix.Setns(self, unix.CLONE_NEWNS) // Linux 5.8: leaves a chroot
		_ = unix.Close(self)
		if errors.Is(err, unix.EPERM) {
			return err
		}
	}
	if err := unix.Fchdir(root); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	return errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Chroot("."), unix.Chdir("/"))
}

// provide mounts the file systems that systemd's test mode reads and this root lacks.
func provide() error {
	missing := func(name string) bool { _, err := os.Stat(name); return err != nil }
	if err := unix.Mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("mounting /run: %w", err)
	}
	if err := errors.Join(os.Mkdir("/run/systemd", 0o755), os.Mkdir("/run/nodegate", 0o755)); err != nil {
		return err
	}
	if missing("/proc/self") {
		if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
			return fmt.Errorf("mounting /proc: %w", err)
		}
	}
	if entries, err := os.ReadDir("/sys/fs/cgroup"); err == nil && len(entries) > 0 {
		return nil
	}
	if missing("/sys/fs/cgroup") {
		if err := unix.Mount("tmpfs", "/sys", "tmpfs", 0, "mode=755"); err != nil {
			return fmt.Errorf("mounting /sys: %w", err)
		}
		if err := os.MkdirAll("/sys/fs/cgroup", 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, ""); err != nil {
		return fmt.Errorf("mounting /sys/fs/cgroup: %w", err)
	}
	return nil
}
