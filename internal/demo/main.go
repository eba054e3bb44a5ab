// Command demo shows nodegate at work without changing the machine it runs on. It installs into a
// temporary root. It plans, applies and checks inside its own namespace, in which sysctls of the whole
// machine are read-only. It needs root, or a machine that allows unprivileged user namespaces.
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
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
)

// inside marks the second run, in the scratch namespace.
const inside = "NODEGATE_DEMO_INSIDE"

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
	switch mounts, err := os.ReadFile("/proc/self/mountinfo"); {
	case err == nil && !regexp.MustCompile(`(?m)^\d+ \d+ \S+ \S+ / `).Match(mounts):
		remedy = "This is a chroot, in which the kernel creates no user namespaces: run `make demo` outside of it."
	case errors.Is(why, syscall.ENOSPC):
		remedy = "The number of user namespaces is used up, or 0: see `sysctl user.max_user_namespaces`."
	case os.Geteuid() != 0 && os.Getenv(inside) == "":
		remedy = "Run `make demo` as root, or allow unprivileged user namespaces."
	}
	fmt.Printf("\n# Parts 2 and 3 are skipped: this machine does not let you create namespaces and mounts (%v). %s\n", why, remedy)
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
	cmd := exec.CommandContext(ctx, self, binary)
	cmd.Env = append(os.Environ(), inside+"="+root)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	err = cmd.Run()
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOSPC) {
		printLeftOut(err)
		return nil
	}
	return err
}

// runInScratch runs the second part of the demo, inside the namespaces.
func runInScratch(ctx context.Context, binary string) error {
	if err := protectParameters(); err != nil {
		return err
	}
	la := netlink.NewLinkAttrs()
	la.Name = "flannel.1"
	vxlan := &netlink.Vxlan{LinkAttrs: la, VxlanId: 1, Port: 8472}
	if err := netlink.LinkAdd(vxlan); err != nil {
		return fmt.Errorf("making a vxlan link: %w", err)
	}
	policy := filepath.Join(os.Getenv(inside), "demo.hcl")
	if err := os.WriteFile(policy, []byte(demoPolicy), 0o644); err != nil {
		return err
	}
	fmt.Println("\n# 2. In a scratch network namespace: the findings of the built-in policy. Sysctls of the whole\n" +
		"#    machine are only read.")
	if err := runStep(ctx, anyStatus, binary, "plan", "--policy", writeBuiltin(os.Getenv(inside))); err != nil {
		return err
	}
	fmt.Println("\n# 3. A policy for settings of the namespace: plan, apply, a second plan, and the report.")
	for _, step := range []struct {
		code int
		args []string
	}{
		{0, []string{"plan", "--policy", policy}},
		{0, []string{"apply", "--policy", policy}},
		{0, []string{"plan", "--policy", policy}},
		{0, []string{"check", "--policy", policy, "-v"}},
	} {
		if err := runStep(ctx, step.code, binary, step.args...); err != nil {
			return err
		}
	}
	return nil
}

// writeBuiltin writes a policy that uses only the built-in one, so that a policy installed on this
// machine does not matter.
func writeBuiltin(dir string) string {
	name := filepath.Join(dir, "kubernetes.hcl")
	if err := os.WriteFile(name, []byte("use \"kubernetes\" {}\n"), 0o644); err != nil {
		return ""
	}
	return name
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

const demoPolicy = `sysctl "net.ipv4.ip_forward" {
  value  = 1
  reason = "Without it the node drops every packet between its Pods and other machines."
}

link "vxlan" {
  match { kind = "vxlan" }
  offload = { tx-checksum-ip-generic = false }
  sysctl  = { "net.ipv4.conf.*.rp_filter" = 0 }
  reason  = "The kernel's VXLAN checksum bug delays each connection by seconds."
}
`

// anyStatus marks a step whose exit status depends on the machine.
const anyStatus = -1

// runStep prints a command line, runs it, and fails if it does not exit with code.
func runStep(ctx context.Context, code int, binary string, args ...string) error {
	fmt.Println("$ nodegate", strings.Join(args, " "))
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err := cmd.Run()
	var status *exec.ExitError
	if err != nil && !errors.As(err, &status) {
		return err
	}
	if got := cmd.ProcessState.ExitCode(); got != code && code != anyStatus {
		return fmt.Errorf("nodegate %s: exit status %d, expected %d", args[0], got, code)
	}
	return nil
}
