package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/vishvananda/netlink"
)

const forwardPolicy = `sysctl "net.ipv4.ip_forward" {
  value  = 1
  reason = "Without it the node drops every packet between its Pods and other machines."
}

gate {
  repair   = false # so that it can be seen to hold
  interval = "500ms"
}
`

const demoPolicy = `sysctl "net.bridge.bridge-nf-call-iptables" {
  value  = 1
  reason = "Without it the reply of a Service whose endpoint is on the same node is not translated back."
}

link "vxlan" {
  match { kind = "vxlan" }
  offload = { tx-checksum-ip-generic = false }
  reason  = "The kernel's VXLAN checksum bug delays each connection by seconds."
}
`

// bridgeCall is 0 on a node without fix-bridge, and 1 on one that can carry Services.
const (
	forwarding = "/proc/sys/net/ipv4/ip_forward"
	bridgeCall = "/proc/sys/net/bridge/bridge-nf-call-iptables"
)

// scratch is the demo inside its namespaces.
type scratch struct {
	binary, dir string
	files       bool // it has a mount namespace: /run and the console are its own
}

// runInScratch runs parts 2 to 5 of the demo, inside the namespaces.
func runInScratch(ctx context.Context, binary string) error {
	s := scratch{binary, os.Getenv(inside), os.Getenv(netOnly) == ""}
	if s.files {
		if err := protectParameters(); err != nil {
			return err
		}
	}
	la := netlink.NewLinkAttrs()
	la.Name = "flannel.1"
	vxlan := &netlink.Vxlan{LinkAttrs: la, VxlanId: 1, Port: 8472}
	if err := netlink.LinkAdd(vxlan); err != nil {
		return fmt.Errorf("making a vxlan link: %w", err)
	}
	if err := os.WriteFile(forwarding, []byte("0"), 0); err != nil {
		return err
	}
	fmt.Println("\n# 2. In a scratch network namespace: the findings of the built-in policy. Sysctls of the whole\n" +
		"#    machine are only read.")
	if err := runStep(ctx, anyStatus, binary, "plan", s.policy("kubernetes.hcl", "use \"kubernetes\" {}\n")); err != nil {
		return err
	}
	for _, part := range []func(context.Context) error{s.hold, s.carry, s.undo} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

// policy writes a policy and returns its name. A policy that could not be written fails the step that reads it.
func (s scratch) policy(name, text string) string {
	name = filepath.Join(s.dir, name)
	_ = os.WriteFile(name, []byte(text), 0o644)
	return name
}

// hold shows the gate: it holds, and opens by itself as soon as the cause is gone.
func (s scratch) hold(ctx context.Context) error {
	fmt.Println("\n# 3. A node that is wrong: ip_forward is 0. The gate runs before kubelet, and holds it.")
	if !s.files {
		fmt.Println("#    Left out in a chroot: the gate writes to the console and to /run, which the demo cannot hide there.")
		return nil
	}
	policy := s.policy("forward.hcl", forwardPolicy)
	mended := make(chan error, 1)
	mend := time.AfterFunc(3*time.Second, func() {
		fmt.Println("# (3 seconds later, the demo sets ip_forward to 1. Nothing else is needed.)")
		mended <- os.WriteFile(forwarding, []byte("1"), 0)
	})
	defer mend.Stop()
	if err := runStep(ctx, 0, s.binary, acting("gate", "--policy", policy, "--budget", "1m")...); err != nil {
		return err
	}
	return <-mended
}

// acting returns the call of a verb that refuses policies of other users than root.
func acting(call ...string) []string {
	if os.Getenv(mapped) != "" { // no file belongs to root in the user namespace of an ordinary user
		call = append(call, "--allow-writable")
	}
	return call
}

// carry shows a same-node Service that fails, and its cure, with real packets.
func (s scratch) carry(ctx context.Context) error {
	fmt.Println("\n# 4. A Service whose endpoint is on the same node, with real packets: it fails, and is cured.")
	err := errors.Join(os.WriteFile(forwarding, []byte("1"), 0), os.WriteFile(bridgeCall, []byte("0"), 0))
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Println("#    Left out: this kernel has not loaded br_netfilter. Run `modprobe br_netfilter` and `make demo` again to see it.")
		return nil
	}
	if err != nil {
		return err
	}
	switch err := runStep(ctx, 1, s.binary, "probe", "bridge"); {
	case errors.Is(err, errUnknown): // a kernel without NAT, or one that loads no module for a namespace
		fmt.Println("#    Left out: this kernel does not let the probe translate addresses in a namespace.")
		return nil
	case err != nil:
		return err
	}
	policy := s.policy("demo.hcl", demoPolicy)
	if s.files {
		err = runStep(ctx, 0, s.binary, acting("apply", policy)...)
	} else {
		fmt.Println("#    (apply records its changes in /run, which the demo cannot hide in a chroot; so it sets the sysctl itself.)")
		err = os.WriteFile(bridgeCall, []byte("1"), 0)
	}
	if err != nil {
		return err
	}
	return runStep(ctx, 0, s.binary, "probe", "bridge")
}

// page is the page that part 5 leaves for a browser.
const page = "demo.html"

// undo shows the report as a page, and how to undo what apply did.
func (s scratch) undo(ctx context.Context) error {
	fmt.Println("\n# 5. The report as a page, and how to undo it all.")
	name := filepath.Join(filepath.Dir(s.binary), page)
	if err := runStep(ctx, anyStatus, s.binary, "check", "--policy", filepath.Join(s.dir, "kubernetes.hcl"), "--output", name); err != nil {
		return err
	}
	if _, err := os.Stat(name); err != nil {
		return err
	}
	if s.files {
		if err := runStep(ctx, 0, s.binary, "revert"); err != nil {
			return err
		}
	}
	fmt.Printf("\n# Open %s in a browser. On a node, `nodegate uninstall --revert` removes the files and restores the settings.\n", name)
	return nil
}

// anyStatus marks a step whose exit status depends on the machine.
const anyStatus = -1

// errUnknown is the error of a step that could not tell.
var errUnknown = errors.New("nodegate reports unknown")

// runStep prints a command line, runs it, and fails if it does not exit with code.
func runStep(ctx context.Context, code int, binary string, args ...string) error {
	fmt.Print("$ nodegate")
	for _, a := range args {
		fmt.Print(" ", a)
	}
	fmt.Println()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err := cmd.Run()
	var status *exec.ExitError
	if err != nil && !errors.As(err, &status) {
		return err
	}
	switch got := cmd.ProcessState.ExitCode(); {
	case got == code || code == anyStatus:
	case got == 3:
		return errUnknown
	default:
		return fmt.Errorf("nodegate %s: exit status %d, expected %d", args[0], got, code)
	}
	return nil
}
