package vm

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"nodegate/internal/e2e/qemu"
)

// These are the package's own deadlines. They are generous: two emulated machines share two cores with other programs.
const (
	bootTime = 8 * time.Minute
	haltTime = 6 * time.Minute
)

// Machine holds everything that does not change between boots.
type Machine struct {
	Base *Base
	Disk string // the guest writes to it, so each boot finds the changes of the boot before

	Format string       // format of the disk in QEMU's terms; "" is raw
	Memory int          // MiB; 0 is 1024
	Taps   []string     // network cards, one per tap device; the devices must exist in the namespace that Enter joins
	Enter  func() error // joins the namespaces for QEMU, or nil; see qemu.Start
}

// Guest is one boot of a Machine.
type Guest struct {
	*qemu.Running
	agent *agent
}

// Boot starts the machine and returns when its agent answers, which is early: units may still be starting. cmdline is added to the
// kernel command line. If the agent does not answer in time or QEMU ends, the error contains the end of the console's log. The
// caller must end the Guest with Reboot or Kill.
func (m Machine) Boot(ctx context.Context, cmdline string) (*Guest, error) {
	ctx, cancel := context.WithTimeout(ctx, bootTime)
	defer cancel()
	words := m.Base.Arch.words + " root=/dev/vda rw loglevel=4 net.ifnames=0 systemd.show_status=true"
	running, err := qemu.Machine{
		Program: m.Base.Arch.program, Memory: m.Memory, Processors: 1, // two cost a quarter more of the host's
		Disk:   qemu.Disk{File: m.Disk, Format: cmp.Or(m.Format, "raw")},
		Direct: qemu.Direct{Kernel: m.Base.Kernel, Initrd: m.Base.Initrd, Cmdline: strings.TrimSpace(words + " " + cmdline)},
		Ports:  []string{"vm.agent"}, More: slices.Concat(m.clock(), m.networkCards(), m.Base.Arch.options), Enter: m.Enter,
	}.Start()
	if err != nil {
		return nil, err
	}
	g := &Guest{Running: running, agent: newAgent(running.Ports[0])}
	if err := g.agent.waitHello(ctx); err != nil {
		g.Kill()
		return nil, fmt.Errorf("booting: %w\n%s%s", err, g.Complaints(), qemu.Tail(g.Console(), 80))
	}
	return g, nil
}

// clock lets the clock of a machine without network cards count instructions, four nanoseconds each, instead of the host's seconds: on a
// busy host no limit in the guest is over too early. While the guest waits, real time passes. Machines with a card share their time with
// other machines.
func (m Machine) clock() []string {
	if len(m.Taps) > 0 {
		return nil
	}
	return []string{"-icount", "shift=2,sleep=on"}
}

func (m Machine) networkCards() []string {
	var args []string
	for i, tap := range m.Taps {
		sum := sha256.Sum256([]byte(tap)) // two cards on a bridge must not have the same address
		mac := fmt.Sprintf("52:54:00:%02x:%02x:%02x", sum[0], sum[1], sum[2])
		args = append(args, "-netdev", fmt.Sprintf("tap,id=net%d,ifname=%s,script=no,downscript=no", i, tap),
			"-device", fmt.Sprintf("virtio-net-pci,netdev=net%d,mac=%s", i, mac))
	}
	return args
}

// Run executes a shell script (sh -eu) as root in the guest. A failed script is an Output with a Code, not an error. An error means
// that the agent did not answer; then the Guest cannot be used any more. The script is stopped at the context's deadline, or after
// a minute if the context has none.
func (g *Guest) Run(ctx context.Context, script string) (Output, error) {
	return g.agent.run(ctx, script)
}

// Reboot makes the guest's systemd reboot, and returns when the machine is down. Boot the Machine again to continue.
func (g *Guest) Reboot(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, haltTime)
	defer cancel()
	defer g.Kill()
	// The agent may be stopped before it answers; only the end of QEMU counts.
	asked := make(chan error, 1)
	go func() {
		out, err := g.Run(ctx, "sync; systemctl --no-block reboot")
		if err == nil && out.Code != 0 {
			asked <- fmt.Errorf("systemctl reboot: exit %d\n%s", out.Code, out.Stderr)
		}
	}()
	select {
	case <-g.Ended():
		return nil
	case err := <-asked:
		return err
	case <-ctx.Done():
		return fmt.Errorf("waiting for the reboot: %w\n%s", ctx.Err(), qemu.Tail(g.Console(), 80))
	}
}

// MakeMachine turns a prepared tree into a machine with a disk in dir.
func (b *Base) MakeMachine(ctx context.Context, tree, dir string) (Machine, error) {
	m := Machine{Base: b, Disk: filepath.Join(dir, "disk.img")}
	return m, MakeDisk(ctx, tree, m.Disk)
}
