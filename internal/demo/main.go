// Command demo shows nodegate at work without changing the machine it runs on. It installs into a
// temporary root. The rest happens inside its own namespaces, in which sysctls of the whole machine are
// read-only and nothing reaches its console. It needs root, or a machine that allows unprivileged user
// namespaces. In a chroot root has a network namespace only, and the parts that write files are left out.
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
)

// inside marks the second run, in the scratch namespace; netOnly one without a mount namespace, and mapped one of an ordinary user.
const (
	inside  = "NODEGATE_DEMO_INSIDE"
	netOnly = "NODEGATE_DEMO_NETWORK_ONLY"
	mapped  = "NODEGATE_DEMO_MAPPED"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: demo NODEGATE-BINARY")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	binary, err := filepath.Abs(os.Args[1])
	if err == nil {
		if os.Getenv(inside) != "" {
			err = runInScratch(ctx, binary)
		} else {
			err = runDemo(ctx, binary)
		}
	}
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrPermission) && os.Getenv(inside) != "":
		printLeftOut(err)
	default:
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// printLeftOut prints the reason why the rest of the demo is skipped.
func printLeftOut(why error) {
	remedy := "Run `make demo` outside of this container or chroot, or allow it to create user namespaces."
	switch {
	case inChroot():
		remedy = "This is a chroot, in which the kernel creates no user namespaces: run `make demo` outside of it, or as root."
	case errors.Is(why, syscall.ENOSPC):
		remedy = "The number of user namespaces is used up, or 0: see `sysctl user.max_user_namespaces`."
	case os.Geteuid() != 0 && os.Getenv(inside) == "":
		remedy = "Run `make demo` as root, or allow unprivileged user namespaces."
	}
	fmt.Printf("\n# Parts 2 to 5 are skipped: this machine does not let you create namespaces and mounts (%v). %s\n", why, remedy)
}

// inChroot reports whether the root directory is not a mount point, as in a chroot.
func inChroot() bool {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	return err == nil && !regexp.MustCompile(`(?m)^\d+ \d+ \S+ \S+ / `).Match(mounts)
}

func runDemo(ctx context.Context, binary string) error {
	root, err := os.MkdirTemp("", "nodegate-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(root)
	kubelet := filepath.Join(root, "etc/systemd/system/kubelet.service")
	err = os.MkdirAll(filepath.Dir(kubelet), 0o755)
	if err == nil {
		err = os.WriteFile(kubelet, []byte("[Service]\nExecStart=/bin/true\n"), 0o644)
	}
	if err != nil {
		return err
	}
	fmt.Println("# 1. Install into an image: the files it writes. A second install changes nothing.")
	for _, args := range [][]string{{"install", "--root", root}, {"install", "--root", root}, {"uninstall", "--root", root}} {
		if err := runStep(ctx, 0, binary, args...); err != nil {
			return err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	again := func(attr syscall.SysProcAttr, env ...string) error {
		cmd := exec.CommandContext(ctx, self, binary)
		cmd.Env = append(append(os.Environ(), inside+"="+root), env...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		attr.Pdeathsig = syscall.SIGKILL
		cmd.SysProcAttr = &attr
		return cmd.Run()
	}
	var user []string
	if os.Getuid() != 0 {
		user = []string{mapped + "=1"}
	}
	err = again(syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}, user...)
	if errors.Is(err, fs.ErrPermission) && os.Geteuid() == 0 && inChroot() {
		err = again(syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}, netOnly+"=1")
	}
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOSPC) {
		printLeftOut(err)
		return nil
	}
	return err
}

// protectParameters makes the sysctls of the whole machine read-only inside the namespace: if root
// created the user namespace, root inside it still owns them.
func protectParameters() error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	if err := syscall.Mount("none", "/run", "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("hiding /run: %w", err)
	}
	if err := syscall.Mount("/dev/null", "/dev/console", "", syscall.MS_BIND, ""); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("hiding /dev/console: %w", err)
	}
	for _, dir := range []string{"kernel", "vm", "fs"} {
		dir = "/proc/sys/" + dir
		if err := syscall.Mount(dir, dir, "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("protecting %s: %w", dir, err)
		}
		const readOnly = syscall.MS_BIND | syscall.MS_REMOUNT | syscall.MS_RDONLY | syscall.MS_NOSUID | syscall.MS_NODEV | syscall.MS_NOEXEC
		if err := syscall.Mount("", dir, "", readOnly, ""); err != nil {
			return fmt.Errorf("protecting %s: %w", dir, err)
		}
	}
	return nil
}
