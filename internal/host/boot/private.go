package boot

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"nodegate/internal/host/netns"
)

// inPrivate calls run with an empty directory. As root that is a tmpfs in a mount namespace of its own, which ends with this process
// and in which the test mode of systemd finds the file systems that a chroot or a container lacks. Otherwise it is a temporary directory.
func inPrivate(run func(dir string) error) error {
	done := make(chan error)
	go netns.OnSpareThread(func() { done <- privately(run) }) // with the thread ends the namespace
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
	return run("/tmp")
}

// unshareMounts gives this thread a mount namespace of its own, in which no mount reaches any other.
func unshareMounts() error {
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(root) }()
	private := func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") }
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := private(); !errors.Is(err, unix.EINVAL) {
		return err
	}
	// The root of a chroot need not be a mount, and only mounts can be made private: begin at the root of the namespace.
	self, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(self) }()
	for _, step := range []func() error{
		func() error { return unix.Setns(self, unix.CLONE_NEWNS) }, // Linux 5.8
		func() error { return unix.Fchdir(root) },
		func() error { return unix.Unshare(unix.CLONE_NEWNS) },
		private,
		func() error { return unix.Chroot(".") },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("in a chroot: %w", err)
		}
	}
	return nil
}

// provide mounts the file systems that systemd's test mode reads and this root lacks.
func provide() error {
	missing := func(name string) bool { _, err := os.Stat(name); return err != nil }
	mount := func(kind, dir, data string) error {
		if err := unix.Mount(kind, dir, kind, unix.MS_NOSUID|unix.MS_NODEV, data); err != nil {
			return fmt.Errorf("mounting %s: %w", dir, err)
		}
		return nil
	}
	err := mount("tmpfs", "/tmp", "mode=1777") // systemd makes a directory there too
	if err == nil && missing("/run/systemd") {
		err = errors.Join(mount("tmpfs", "/run", "mode=755"), os.Mkdir("/run/systemd", 0o755))
	}
	if err == nil && missing("/proc/self") {
		err = mount("proc", "/proc", "")
	}
	if entries, none := os.ReadDir("/sys/fs/cgroup"); err != nil || none == nil && len(entries) > 0 {
		return err
	}
	if missing("/sys/fs/cgroup") {
		err = errors.Join(mount("tmpfs", "/sys", "mode=755"), os.MkdirAll("/sys/fs/cgroup", 0o755))
	}
	return errors.Join(err, mount("cgroup2", "/sys/fs/cgroup", ""))
}
